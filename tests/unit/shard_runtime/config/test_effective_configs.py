"""Configs in force, and what a change may set."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from kip932.errors import InvalidConfigError
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from shard_runtime.cluster.metadata import MetadataImage
from shard_runtime.config import kafka_configs
from shard_runtime.config.effective_configs import EffectiveConfigs
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.config.process_settings import load_settings


def effective(
    stored: dict[tuple[int, str], dict[str, str]] | None = None, flags: dict[str, str] | None = None
) -> EffectiveConfigs:
    return EffectiveConfigs(load_settings(flags), SimpleNamespace(image=MetadataImage(configs=stored or {})), lambda: 3)


@pytest.mark.rule("GC-146", "PL-1003")
def test_a_group_follows_the_broker_until_it_sets_its_own() -> None:
    flags = {"group.share.delivery.count.limit": "7"}
    assert effective(flags=flags).group("g", kafka_configs.GROUP_DELIVERY_COUNT_LIMIT) == 7
    stored = {(RESOURCE_GROUP, "g"): {"share.delivery.count.limit": "3", "share.auto.offset.reset": "earliest"}}
    here = effective(stored, flags)
    assert here.group("g", kafka_configs.GROUP_DELIVERY_COUNT_LIMIT) == 3
    assert here.group("g", kafka_configs.GROUP_AUTO_OFFSET_RESET) == "earliest"
    assert here.group("other", kafka_configs.GROUP_AUTO_OFFSET_RESET) == "latest"


@pytest.mark.rule("PL-1002", "GC-137")
def test_a_stored_value_outside_the_bounds_is_clamped() -> None:
    stored = {(RESOURCE_GROUP, "g"): {"share.record.lock.duration.ms": "60000"}}
    flags = {"group.share.max.record.lock.duration.ms": "40000"}
    here = effective(stored, flags)
    with capture_logs() as lines:
        for _ in range(2):
            assert here.group("g", kafka_configs.GROUP_LOCK_DURATION_MS) == 40_000
    (reported,) = lines  # logged once
    assert (reported["log_level"], reported["config"], reported["scope"], reported["value"], reported["used"]) == (
        "warning", "share.record.lock.duration.ms", "g", 60_000, 40_000,
    )  # fmt: skip


@pytest.mark.rule("GC-144", "GC-139a")
def test_dynamic_broker_values_are_clamped_and_static_ones_cannot_be_overridden() -> None:
    stored = {
        (RESOURCE_BROKER, ""): {"group.share.assignment.interval.ms": "99999", "group.share.max.size": "3"},
        (RESOURCE_BROKER, "3"): {"errors.deadletterqueue.topic.name.prefix": "mine."},
    }
    here = effective(stored)
    assert here.broker(kafka_configs.ASSIGNMENT_INTERVAL_MS) == 15_000
    assert here.broker(kafka_configs.DLQ_PREFIX) == "mine."
    assert here.broker(kafka_configs.GROUP_MAX_SIZE) == 200
    assert here.group("g", kafka_configs.GROUP_ASSIGNMENT_INTERVAL_MS) == 15_000


@pytest.mark.rule("CM-23")
def test_topic_configs() -> None:
    here = effective({(RESOURCE_TOPIC, "t"): {"retention.ms": "5"}})
    assert here.topic("t", kafka_configs.RETENTION_MS) == 5
    assert here.topic("t", kafka_configs.MAX_MESSAGE_BYTES) == 1_048_576


@pytest.mark.rule("GC-145", "GC-144a", "PL-1002")
@pytest.mark.scenario("S-131")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.session.timeout.ms", "1"),
        ("share.session.timeout.ms", "70000"),
        ("share.heartbeat.interval.ms", "1"),
        ("share.heartbeat.interval.ms", "70000"),
        ("share.record.lock.duration.ms", "10000"),
        ("share.record.lock.duration.ms", "70000"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "50"),
        ("share.partition.max.record.locks", "11000"),
        ("share.auto.offset.reset", "hello"),
        ("share.auto.offset.reset", "by_duration"),
        ("share.auto.offset.reset", "by_duration:-PT10S"),
        ("share.auto.offset.reset", "by_duration:invalid"),
        ("share.isolation.level", "read_commit"),
        ("share.renew.acknowledge.enable", "1"),
        ("errors.deadletterqueue.topic.name", "__internal"),
        ("no.such.config", "1"),
    ],
)
def test_values_a_group_may_not_have(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=name):
        effective().check(RESOURCE_GROUP, {name: value}, frozenset({name}))


@pytest.mark.rule("GC-144a")
@pytest.mark.scenario("S-131")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.auto.offset.reset", "earliest"),
        ("share.auto.offset.reset", "latest"),
        ("share.auto.offset.reset", "by_duration:PT10S"),
        ("share.isolation.level", "read_committed"),
        ("share.isolation.level", "read_uncommitted"),
        ("share.renew.acknowledge.enable", "true"),
        ("share.renew.acknowledge.enable", "false"),
    ],
)
def test_values_a_group_may_have(name: str, value: str) -> None:
    effective().check(RESOURCE_GROUP, {name: value}, frozenset({name}))


@pytest.mark.rule("GC-145")
def test_the_range_message_is_kafkas() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        effective().check(
            RESOURCE_GROUP, {"share.delivery.count.limit": "11"}, frozenset({"share.delivery.count.limit"})
        )
    kafkas, _, ours = caught.value.message.partition(" inclusive. ")
    assert kafkas == "share.delivery.count.limit must be in the range 2 to 10"
    assert "11" in ours
    assert "group.share.max.delivery.count.limit" in ours


@pytest.mark.rule("GC-145")
def test_who_wants_a_longer_lock_hears_of_the_range_and_of_renewing() -> None:
    name = "share.record.lock.duration.ms"
    with pytest.raises(InvalidConfigError) as caught:
        effective().check(RESOURCE_GROUP, {name: "120000"}, frozenset({name}))
    for words in ("15000 to 60000", "120000", "group.share.max.record.lock.duration.ms", "RENEW"):
        assert words in caught.value.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("retention.msx", "Unknown topic config name: retention.msx. Did you mean 'retention.ms'?"),
        ("nope", "Unknown topic config name: nope"),
        ("retention.ms" * 1_000, f"Unknown topic config name: {'retention.ms' * 1_000}"),
    ],
)
def test_a_name_that_is_like_a_config_is_reported_with_it(name: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        effective().check(RESOURCE_TOPIC, {name: "1"}, frozenset({name}))
    assert caught.value.message == said


@pytest.mark.rule("GC-145")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("range", "type", "name"), "Unknown group config name: nope"),
        (("pair", "range", "type"), "share.partition.max.record.locks"),
        (("pair", "range"), "share.delivery.count.limit must be in the range"),
        (("pair",), "share.session.timeout.ms must be greater than"),
    ],
)
def test_of_several_faults_the_first_kind_is_reported(wrong: tuple[str, ...], said: str) -> None:
    flags = {"group.share.max.heartbeat.interval.ms": "50000"}
    faults = {
        "name": {"nope": "1"},
        "type": {"share.partition.max.record.locks": "many"},
        "range": {"share.delivery.count.limit": "11"},
        "pair": {"share.heartbeat.interval.ms": "46000", "share.session.timeout.ms": "45000"},
    }
    values = {name: value for kind in wrong for name, value in faults[kind].items()}
    with pytest.raises(InvalidConfigError) as caught:
        effective(flags=flags).check(RESOURCE_GROUP, values, frozenset(values))
    assert said in caught.value.message


@pytest.mark.rule("GC-145", "GC-147")
def test_session_timeout_and_heartbeat_are_checked_together_when_either_is_set() -> None:
    flags = {
        "group.share.max.heartbeat.interval.ms": "59000",
        "group.share.min.session.timeout.ms": "10000",
    }
    here = effective(flags=flags)
    stored = {"share.heartbeat.interval.ms": "20000"}
    changed = frozenset({"share.session.timeout.ms"})
    here.check(RESOURCE_GROUP, {**stored, "share.session.timeout.ms": "21000"}, changed)
    with pytest.raises(InvalidConfigError, match=r"share\.session\.timeout\.ms must be greater than share\.heartbeat"):
        here.check(
            RESOURCE_GROUP, {**stored, "share.session.timeout.ms": "20000"}, frozenset({"share.session.timeout.ms"})
        )


@pytest.mark.rule("GC-137")
def test_a_stored_value_outside_later_bounds_does_not_block_other_changes() -> None:
    here = effective(flags={"group.share.max.record.lock.duration.ms": "40000"})
    values = {"share.record.lock.duration.ms": "60000", "share.delivery.count.limit": "4"}
    here.check(RESOURCE_GROUP, values, frozenset({"share.delivery.count.limit"}))


@pytest.mark.rule("PL-1003", "GC-138")
def test_the_configs_of_a_group_are_one_value_for_each_version_of_the_metadata() -> None:
    stored = {(RESOURCE_GROUP, "g"): {"share.record.lock.duration.ms": "20000"}}
    metadata = SimpleNamespace(image=MetadataImage(version=1, configs=stored))
    here = EffectiveConfigs(load_settings(None), metadata)
    found = here.group_config("g")
    assert (found.lock_ms, found.read_committed, here.group_config("g") is found) == (20_000, False, True)
    stored[RESOURCE_GROUP, "g"] = {"share.record.lock.duration.ms": "25000", "share.isolation.level": "read_committed"}
    assert here.group_config("g") is found
    metadata.image = MetadataImage(version=2, configs=stored)
    assert (here.group_config("g").lock_ms, here.group_config("g").read_committed) == (25_000, True)
    metadata.image = MetadataImage(version=2)  # the store lost its tail, and another change has the same version
    assert here.group_config("g").lock_ms == 30_000


@pytest.mark.rule("CM-183")
def test_the_configs_of_few_groups_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shard_runtime.config.effective_configs._GROUPS_MAX", 10)
    here = EffectiveConfigs(load_settings(None), SimpleNamespace(image=MetadataImage()))
    for number in range(25):
        assert here.group_config(f"g{number}").lock_ms == 30_000
        assert len(here._groups) <= 10


def test_without_configs_of_a_group_the_documented_defaults_hold() -> None:
    assert effective().group_config("g") == GroupConfig()


@pytest.mark.rule("GC-27", "GC-32", "GC-137", "GC-138")
def test_the_coordinators_configs_are_the_groups_clamped_or_the_brokers() -> None:
    own = {
        "share.session.timeout.ms": "50000",
        "share.heartbeat.interval.ms": "99999",
        "sharegroups.assignor": "shared",
        "sharegroups.assignor.members.per.partition": "3",
    }
    found = effective({(RESOURCE_GROUP, "g"): own}).group_config("g")
    assert (found.session_timeout_ms, found.heartbeat_interval_ms, found.assignment_interval_ms) == (
        50_000,
        15_000,
        1_000,
    )
    assert (found.assignor, found.members_per_partition) == ("shared", 3)
    brokers = {
        "group.share.session.timeout.ms": "46000",
        "group.share.heartbeat.interval.ms": "6000",
        "group.share.assignment.interval.ms": "700",
    }
    found = effective(flags=brokers).group_config("any")
    assert (found.session_timeout_ms, found.heartbeat_interval_ms, found.assignment_interval_ms) == (46_000, 6_000, 700)


@pytest.mark.rule("PL-936")
@pytest.mark.parametrize(("most", "greatest"), [("5000", 5_000), ("86400000", 9_000)])
def test_a_back_off_is_never_longer_than_the_groups_longest_delay(most: str, greatest: int) -> None:
    configs = {
        "sharegroups.retry.delay.max.ms": most,
        "sharegroups.retry.backoff.initial.ms": "1000",
        "sharegroups.retry.backoff.max.ms": "9000",
    }
    given = {(RESOURCE_GROUP, "g"): configs}
    settings = effective(given).group_config("g")
    assert settings.backoff.delay_ms(60, 0.0) == greatest
    assert settings.delay_max_ms == int(most)
