"""The declared configs are those of the specification's tables (group-coordinator.md §8.1 and §8.2), name by name."""

from __future__ import annotations

import pytest

from kip932.setting import AnySetting, SettingTable
from shard_runtime.config.kafka_configs import BROKER_CONFIGS, GROUP_CONFIGS

INT32_MAX = 2**31 - 1
Row = tuple[object, int | None, int | None]

#: Name → default, minimum and maximum; None where the table gives no bound.
BROKER: dict[str, Row] = {
    "group.share.session.timeout.ms": (45_000, 1, None),
    "group.share.min.session.timeout.ms": (45_000, 1, None),
    "group.share.max.session.timeout.ms": (60_000, 1, None),
    "group.share.heartbeat.interval.ms": (5_000, 1, None),
    "group.share.min.heartbeat.interval.ms": (5_000, 1, None),
    "group.share.max.heartbeat.interval.ms": (15_000, 1, None),
    "group.share.max.size": (200, 1, 1_000),
    "group.share.assignors": (("simple",), None, None),
    "group.share.assignment.interval.ms": (1_000, 0, None),
    "group.share.min.assignment.interval.ms": (0, 0, None),
    "group.share.max.assignment.interval.ms": (15_000, 0, None),
    "group.share.assignor.offload.enable": (True, None, None),
    "group.share.initialize.retry.interval.ms": (30_000, 1, None),
    "offsets.commit.timeout.ms": (5_000, 1, None),
    "offsets.topic.num.partitions": (50, 1, None),
    "offsets.load.buffer.size": (5_242_880, 1, None),
    "group.coordinator.threads": (4, 1, None),
    "group.coordinator.background.threads": (2, 1, None),
    "group.coordinator.append.linger.ms": (-1, -1, None),
    "group.coordinator.rebalance.protocols": (("classic", "consumer", "streams"), None, None),
    "errors.deadletterqueue.auto.create.topics.enable": (False, None, None),
    "errors.deadletterqueue.topic.name.prefix": ("dlq.", None, None),
    "group.share.record.lock.duration.ms": (30_000, 1_000, 3_600_000),
    "group.share.min.record.lock.duration.ms": (15_000, 1_000, 30_000),
    "group.share.max.record.lock.duration.ms": (60_000, 30_000, 3_600_000),
    "group.share.delivery.count.limit": (5, 2, 10),
    "group.share.min.delivery.count.limit": (2, 2, 5),
    "group.share.max.delivery.count.limit": (10, 5, 25),
    "group.share.partition.max.record.locks": (2_000, 100, 10_000),
    "group.share.min.partition.max.record.locks": (100, 100, 2_000),
    "group.share.max.partition.max.record.locks": (4_000, 2_000, 10_000),
    "group.share.max.share.sessions": (2_000, 1, None),
    "share.fetch.purgatory.purge.interval.requests": (1_000, None, None),
}
DYNAMIC = {
    "group.share.assignment.interval.ms",
    "group.share.assignor.offload.enable",
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
}
GROUP: dict[str, Row] = {
    "share.session.timeout.ms": (45_000, 1, None),
    "share.heartbeat.interval.ms": (5_000, 1, None),
    "share.assignment.interval.ms": (1_000, 0, None),
    "share.assignor.offload.enable": (True, None, None),
    "share.record.lock.duration.ms": (30_000, 1_000, None),
    "share.delivery.count.limit": (5, 2, None),
    "share.partition.max.record.locks": (2_000, 100, None),
    "share.auto.offset.reset": ("latest", None, None),
    "share.isolation.level": ("read_uncommitted", None, None),
    "share.renew.acknowledge.enable": (True, None, None),
    "errors.deadletterqueue.topic.name": ("", None, None),
    "errors.deadletterqueue.copy.record.enable": (False, None, None),
    "sharegroups.errors.deadletterqueue.failure": ("retry", None, None),
    "sharegroups.errors.deadletterqueue.waiting.max": (5_000, 1, 5_000),
    "sharegroups.assignor": ("default", None, None),
    "sharegroups.assignor.members.per.partition": (0, 0, 1_000),
    "sharegroups.retry.delay.max.ms": (86_400_000, 1_000, 2_592_000_000),
    "sharegroups.retry.delayed.max": (5_000, 1, 5_000),
    "sharegroups.retry.backoff.initial.ms": (0, 0, 86_400_000),
    "sharegroups.retry.backoff.multiplier": (2.0, 1, 10),
    "sharegroups.retry.backoff.max.ms": (60_000, 1, 86_400_000),
    "sharegroups.retry.backoff.jitter": (0.1, 0, 1),
}
#: Group config → the part that follows `group.share.min.` and `group.share.max.` in the names of its bounds.
BOUNDED = {
    "share.session.timeout.ms": "session.timeout.ms",
    "share.heartbeat.interval.ms": "heartbeat.interval.ms",
    "share.assignment.interval.ms": "assignment.interval.ms",
    "share.record.lock.duration.ms": "record.lock.duration.ms",
    "share.delivery.count.limit": "delivery.count.limit",
    "share.partition.max.record.locks": "partition.max.record.locks",
}


def row(setting: AnySetting) -> Row:
    """Return a declaration's default and range; the type's own maximum does not count as a bound."""
    return setting.default, setting.low, None if setting.high == INT32_MAX else setting.high


@pytest.mark.rule("GC-139a", "12.13", "12.14")
@pytest.mark.parametrize("name", BROKER)
def test_a_broker_config_is_declared_as_the_table_says(name: str) -> None:
    setting = BROKER_CONFIGS[name]
    assert row(setting) == BROKER[name]
    assert setting.dynamic == (name in DYNAMIC)


@pytest.mark.rule("GC-139a", "GC-144a")
@pytest.mark.parametrize(("rows", "table"), [(BROKER, BROKER_CONFIGS), (GROUP, GROUP_CONFIGS)], ids=["broker", "group"])
def test_a_value_outside_its_own_range_is_refused_and_the_ends_are_not(
    rows: dict[str, Row], table: SettingTable
) -> None:
    for name, (_, low, high) in rows.items():
        for end, step in ((low, -1), (high, 1)):
            if end is not None:
                assert table[name].value(str(end)) == end
                with pytest.raises(ValueError, match=r"it must be at (least|most)"):
                    table[name].value(str(end + step))


@pytest.mark.rule("GC-144a", "12.13", "12.14", "12.15")
def test_the_group_configs_are_those_of_the_table() -> None:
    assert {name: row(setting) for name, setting in GROUP_CONFIGS.items()} == GROUP
    bounds = {name: setting.bounds for name, setting in GROUP_CONFIGS.items() if setting.bounds is not None}
    assert bounds == {name: (f"group.share.min.{rest}", f"group.share.max.{rest}") for name, rest in BOUNDED.items()}
    for name in (*BOUNDED, "share.assignor.offload.enable"):
        assert GROUP_CONFIGS[name].synonym == f"group.{name}"
