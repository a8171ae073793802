"""Settings of the clients: how they are given, checked and refused."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest
from kip932.ids import ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT
from kip932.rpc.transport import TransportError, TransportStatus
from kip932.setting import Setting
from share_node.certs import Authority
from sharegroups.config import (
    ADMIN,
    CONSUMER,
    ELSEWHERE,
    PRODUCER,
    REFUSED,
    Config,
    consumer_config,
    given_settings,
)
from sharegroups.connection.coordinator_calls import fatal_error
from sharegroups.connection.security import transport_for
from sharegroups.connection.wire import HEARTBEAT
from sharegroups.consuming.member import Member
from sharegroups.errors import ConfigError, InvalidGroupIdError

GROUP = {"group.id": "g"}


@pytest.mark.rule("CL-39")
@pytest.mark.parametrize("settings", [ADMIN, CONSUMER, PRODUCER])
def test_every_default_is_a_value_that_may_be_given(settings: tuple[Setting[Any], ...]) -> None:
    assert len({setting.name for setting in settings}) == len(settings)
    for setting in settings:
        assert Config(settings, {setting.name: setting.default})[setting.name] == setting.default, setting.name


@pytest.mark.rule("CL-39")
def test_the_defaults_of_a_share_consumer_are_those_of_the_table() -> None:
    table = {
        "share.acknowledgement.mode": "implicit",
        "share.acquire.mode": "adaptive",
        "max.poll.records": 500,
        "max.poll.interval.ms": 300_000,
        "fetch.min.bytes": 1,
        "fetch.max.bytes": 52_428_800,
        "fetch.max.wait.ms": 500,
        "max.partition.fetch.bytes": 1_048_576,
        "client.rack": "",
        "client.id": "",
        "check.crcs": True,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1000,
        "request.timeout.ms": 30_000,
        "default.api.timeout.ms": 60_000,
    }
    config = consumer_config(GROUP, {})
    assert {name: config[name] for name in table} == table
    for mode in ("implicit", "explicit"):
        assert consumer_config(GROUP, {"share.acknowledgement.mode": mode})["share.acknowledgement.mode"] == mode


@pytest.mark.rule("CL-39", "CL-36")
def test_a_fetch_says_what_the_settings_say() -> None:
    settings = {"max.poll.records": 7, "fetch.min.bytes": 2, "fetch.max.bytes": 3, "fetch.max.wait.ms": 4}
    for mode, number in (("record_limit", ACQUIRE_RECORD_LIMIT), ("batch_optimized", ACQUIRE_BATCH_OPTIMIZED)):
        config = consumer_config({**GROUP, **settings, "share.acquire.mode": mode}, {})
        request = Member("g", "me", config).fetch_request()
        assert (request.group_id, request.member_id, request.share_acquire_mode) == ("g", "me", number)
        assert (request.max_records, request.batch_size) == (7, 7)
        assert (request.min_bytes, request.max_bytes, request.max_wait_ms) == (2, 3, 4)


@pytest.mark.rule("CL-110")
def test_a_producers_batch_holds_a_hundred_thousand_records_at_most() -> None:
    assert Config(PRODUCER, {"batch.num.records": 100_000})["batch.num.records"] == 100_000
    with pytest.raises(ConfigError, match=r"batch\.num\.records"):
        Config(PRODUCER, {"batch.num.records": 100_001})


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
    with pytest.raises(ConfigError, match="cannot be set when using a share group") as refusal:
        consumer_config({**GROUP, name: "x"}, {})
    assert REFUSED[name] in str(refusal.value)


@pytest.mark.rule("CL-40")
@pytest.mark.parametrize("name", ["linger.ms", "auto.offset.reset", "enable.auto.commit", "retries", *ELSEWHERE])
@pytest.mark.parametrize("settings", [ADMIN, CONSUMER, PRODUCER])
def test_settings_of_kafkas_clients_are_refused_with_what_takes_their_place(
    name: str, settings: tuple[Setting[Any], ...]
) -> None:
    assert name not in {setting.name for setting in (*CONSUMER, *PRODUCER)}
    with pytest.raises(ConfigError, match=r"does not exist here\. Instead: ") as refusal:
        Config(settings, {name: "x"})
    assert {**ELSEWHERE, **REFUSED}[name] in str(refusal.value)


@pytest.mark.rule("CL-40")
def test_settings_of_the_other_client_are_refused_with_whose_they_are() -> None:
    with pytest.raises(ConfigError, match=r"^acks is a setting of a producer"):
        consumer_config(GROUP, {"acks": "all"})
    with pytest.raises(ConfigError, match=r"^max\.poll\.records is a setting of a share consumer"):
        Config(PRODUCER, {"max.poll.records": 1})


def test_what_a_refusal_names_exists() -> None:
    known = {setting.name for setting in (*CONSUMER, *PRODUCER)}
    for text in (*ELSEWHERE.values(), *REFUSED.values()):
        for word in re.findall(r"\b[a-z]+(?:\.[a-z]+)+\b", text.split("--add-config")[0]):
            assert word in known, text


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    "address", ["10.0.0.1:7932", "[2001:db8::1]:7932", "queue.example.org:7932", "127.0.0.1:1,10.0.0.1:1"]
)
def test_a_token_is_not_sent_without_tls_beyond_this_machine(address: str) -> None:
    given = {"bootstrap.servers": address, "sasl.oauthbearer.token": "t"}
    with pytest.raises(ConfigError, match=r"set security\.protocol=SSL, or"):
        transport_for(Config(ADMIN, given))
    for name, value in (("security.protocol", "SSL"), ("sasl.oauthbearer.allow.plaintext", True)):
        transport_for(Config(ADMIN, given | {name: value}))
    transport_for(Config(ADMIN, given | {"sasl.oauthbearer.token": ""}))


@pytest.mark.rule("CM-60")
def test_a_token_is_not_sent_to_a_node_that_the_bootstrap_node_names() -> None:
    async def play() -> None:
        given = {"bootstrap.servers": "127.0.0.1:1,[::1]:1,localhost:1", "sasl.oauthbearer.token": "t"}
        transport = transport_for(Config(ADMIN, given))
        with pytest.raises(TransportError, match="without TLS") as refusal:
            await transport.call("10.0.0.1:7932", HEARTBEAT, ShareGroupHeartbeatRequest(), 5)
        assert refusal.value.status is TransportStatus.UNAUTHENTICATED
        assert str(fatal_error(refusal.value)).startswith("the call was not sent: 10.0.0.1:7932"), "no node refused it"
        await transport.close()

    asyncio.run(play())


@pytest.mark.rule("CM-60")
def test_files_are_read_again_for_each_channel_and_kept_while_they_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[bytes | None, ...]] = []

    def make(*pem: bytes | None) -> str:
        made.append(pem)
        return f"credentials {len(made)}"

    monkeypatch.setattr("grpc.ssl_channel_credentials", make)
    authority = tmp_path / "ca.crt"
    one, two = Authority.made().certificate, Authority.made().certificate
    authority.write_bytes(one)
    given = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.ca.location": str(authority)}
    transport = transport_for(Config(ADMIN, given))
    credentials = transport._credentials
    assert credentials is not None
    authority.write_bytes(two)
    assert str(credentials()) == "credentials 2"
    authority.unlink()
    assert str(credentials()) == "credentials 2"
    assert made == [(one, None, None), (two, None, None)]
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location is .*, which cannot be read"):
        transport_for(Config(ADMIN, given))
    with pytest.raises(ConfigError, match="belong together"):
        transport_for(Config(ADMIN, given | {"ssl.key.location": str(authority)}))


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'max\.poll\.records'"):
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


@pytest.mark.rule("CL-45")
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
