"""Settings of the clients: how they are given, checked and refused."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroups.config import ADMIN, CONSUMER, PRODUCER, REFUSED, Config, Setting, consumer_config, given_settings
from sharegroups.errors import ConfigError, InvalidGroupIdError

GROUP = {"group.id": "g"}


@pytest.mark.rule("CL-39")
@pytest.mark.parametrize("settings", [ADMIN, CONSUMER, PRODUCER])
def test_every_default_is_a_value_that_may_be_given(settings: tuple[Setting, ...]) -> None:
    assert len({setting.name for setting in settings}) == len(settings)
    for setting in settings:
        assert setting.default is None or setting.parse(setting.default) == setting.default, setting.name


@pytest.mark.rule("CL-39")
def test_numbers_and_truth_may_be_given_as_text() -> None:
    config = Config(CONSUMER, {"max.poll.records": "7", "check.crcs": "FALSE", "client.id": 5})
    assert (config["max.poll.records"], config["check.crcs"], config["client.id"]) == (7, False, "5")
    assert config["fetch.max.wait.ms"] == 500


@pytest.mark.rule("CL-39")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max.poll.records", 0, "a whole number from 1 to 2147483647"),
        ("max.poll.records", "many", "a whole number"),
        ("max.poll.records", True, "a whole number"),
        ("max.poll.records", 1.5, "a whole number"),
        ("check.crcs", "yes", "true or false"),
        ("share.acquire.mode", "greedy", "one of adaptive, record_limit, batch_optimized"),
        ("bootstrap.servers", ["a:1", "b:2"], "text, 'a:1, b:2'"),
        ("value.deserializer", "json", "a function of one argument"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_was_expected(name: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refusal:
        Config(CONSUMER, {name: value})
    assert name in str(refusal.value)


@pytest.mark.rule("CL-40")
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_settings_of_ordinary_groups_are_refused_by_a_share_consumer(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be set when using a share group"):
        consumer_config({**GROUP, name: "x"}, {})


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'max\.poll\.records'"):
        consumer_config(GROUP, {"max_poll_record": 1})
    with pytest.raises(ConfigError, match=r"unknown setting 'qqqqq'$"):
        consumer_config(GROUP, {"qqqqq": 1})


@pytest.mark.rule("CL-20")
@pytest.mark.parametrize("group", [None, "", "  "])
def test_a_share_consumer_needs_a_group(group: str | None) -> None:
    with pytest.raises(InvalidGroupIdError, match=r"group\.id is"):
        consumer_config({"group.id": group}, {})


def test_two_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"at most fetch\.max\.bytes"):
        consumer_config(GROUP, {"fetch_min_bytes": 10, "fetch_max_bytes": 9})
    with pytest.raises(ConfigError, match=r"at least retry\.backoff\.ms, which is 500"):
        Config(ADMIN, {"retry.backoff.ms": 500, "retry.backoff.max.ms": 499})


@pytest.mark.rule("CL-44")
def test_keywords_are_settings_with_dots_and_come_before_the_dict() -> None:
    given = given_settings({"client.id": "a", **GROUP}, {"client_id": "b"})
    assert given == {"client.id": "b", "group.id": "g"}


@pytest.mark.parametrize("text", ["node", "node:", ":9000", "node:0", "node:65536", "a:1,b"])
def test_an_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        Config(ADMIN, {"bootstrap.servers": text}).check_bootstrap()


def test_addresses_are_a_comma_list() -> None:
    assert Config(ADMIN, {"bootstrap.servers": " a:1, [::1]:2 ,"}).bootstrap == ["a:1", "[::1]:2"]
    with pytest.raises(ConfigError, match="is missing"):
        Config(ADMIN, {}).check_bootstrap()
