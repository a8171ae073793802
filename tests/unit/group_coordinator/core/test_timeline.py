"""The worked timeline GC-35, record by record."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import Initializing, Lifecycle, TopicState
from kip932.ids import TopicIdPartition
from shard_runtime.config.group_config import GroupConfig
from tests.support.group_driver import Driver, persisted, topic_id

T = topic_id("t")
Partitions = tuple[TopicIdPartition, ...]
ALL = {T: (0, 1, 2, 3)}


def _driver() -> Driver:
    driver = Driver(configs=GroupConfig(assignment_interval_ms=1_000))
    driver.create("t", 4)
    return driver


def _shape(record: r.Record) -> object:
    """Return a record's content in a form short enough for a table."""
    record = persisted(record)
    found: object = record
    match record:
        case r.MemberMetadata():
            found = ("MEMBER", record.member_id, record.subscribed)
        case r.GroupMetadata():
            found = ("GROUP", record.epoch)
        case r.TargetMember():
            found = ("TARGET", record.member_id, record.assignment)
        case r.TargetMetadata():
            found = ("TARGET_META", record.epoch)
        case r.CurrentAssignment():
            found = ("CURRENT", record.member_id, record.epoch, record.previous_epoch, record.assigned)
        case r.StateMetadata():
            found = ("STATE", record.lifecycle)
        case r.Tombstone():
            found = ("TOMB", record.kind, record.member_id, record.reason)
    return found


INITIALIZING = TopicState(T, "t", 4, {index: Initializing(-1, 2) for index in range(4)})
INITIALIZED = TopicState(T, "t", 4, {}, (0, 1, 2, 3))


class Step(NamedTuple):
    """One row of GC-35: the time, the member, its epoch and topics, the response, and the records written."""

    at_ms: int
    member_id: str
    epoch: int
    topics: list[str] | None
    answer: tuple[int, object]
    records: list[object]


JOIN_A = Step(
    0, "A", 0, ["t"], (2, {}),
    [("MEMBER", "A", ("t",)), ("GROUP", 2), ("TARGET", "A", {}), ("TARGET_META", 2), ("CURRENT", "A", 2, 0, {}),
     ("STATE", Lifecycle({T: INITIALIZING}))],
)  # fmt: skip
AFTER_INITIALIZATION = [
    Step(10, "A", 2, None, (2, None), [("GROUP", 3)]),
    Step(5_010, "A", 2, None, (3, ALL), [("TARGET", "A", ALL), ("TARGET_META", 3), ("CURRENT", "A", 3, 2, ALL)]),
    Step(
        7_000, "B", 0, ["t"], (4, {T: (0, 1)}),
        [("MEMBER", "B", ("t",)), ("GROUP", 4), ("TARGET", "A", {T: (2, 3)}), ("TARGET", "B", {T: (0, 1)}),
         ("TARGET_META", 4), ("CURRENT", "B", 4, 0, {T: (0, 1)})],
    ),
    Step(10_010, "A", 3, None, (4, {T: (2, 3)}), [("CURRENT", "A", 4, 3, {T: (2, 3)})]),
    Step(10_020, "A", 3, ["t"], (4, {T: (2, 3)}), []),
    Step(
        12_000, "B", -1, None, (-1, None),
        [("TOMB", 14, "B", "left"), ("TOMB", 13, "B", "left"), ("TOMB", 10, "B", "left"), ("GROUP", 5)],
    ),
    Step(15_010, "A", 4, None, (5, ALL), [("TARGET", "A", ALL), ("TARGET_META", 5), ("CURRENT", "A", 5, 4, ALL)]),
]  # fmt: skip


@pytest.mark.rule(
    "GC-35", "GC-24a", "GC-24f", "GC-24g", "GC-25", "GC-26", "GC-30", "GC-63a", "GC-71", "GC-75", "GC-77", "GC-29"
)
def test_the_worked_timeline_is_written_and_answered_step_by_step() -> None:
    driver = _driver()
    start_ms = driver.now_ms

    def wrote() -> list[object]:
        found = [_shape(record) for record in driver.log]
        driver.log.clear()
        return found

    def take(step: Step) -> None:
        driver.now_ms = start_ms + step.at_ms
        reply = driver.beat(step.member_id, step.epoch, step.topics)
        assert (step.at_ms, wrote()) == (step.at_ms, step.records)
        assert (step.at_ms, (reply.member_epoch, reply.assignment)) == (step.at_ms, step.answer)

    take(JOIN_A)
    driver.now_ms = start_ms + 5
    (order,) = driver.initialize()
    assert (order.state_epoch, [start for _, start in order.partitions]) == (2, [-1] * 4)
    assert wrote() == [("STATE", Lifecycle({T: INITIALIZED}))]
    for step in AFTER_INITIALIZATION:
        take(step)


def _kinds(records: list[r.Record]) -> list[int]:
    """Return the record types of GC-59a; a tombstone's type is negative."""
    numbers = {r.MemberMetadata: 10, r.GroupMetadata: 11, r.TargetMetadata: 12, r.TargetMember: 13}
    numbers |= {r.CurrentAssignment: 14, r.StateMetadata: 15}
    return [-record.kind if isinstance(record, r.Tombstone) else numbers[type(persisted(record))] for record in records]


@pytest.mark.rule("GC-63a")
def test_each_situation_writes_its_records_in_order() -> None:
    driver = Driver()
    for name in "tu":
        driver.create(name, 1)

    def wrote(command: Callable[[], object]) -> list[int]:
        size = len(driver.log)
        command()
        return _kinds(driver.new_records(size))

    def finished(succeeded: Partitions = (), failed: Partitions = ()) -> list[int]:
        (order,) = (effect for effect in driver.take_effects() if isinstance(effect, c.InitializeState))
        return wrote(lambda: driver.run(c.InitializationFinished("g", order.attempt, succeeded, failed)))

    def beat(epoch: int, topics: list[str] | None = None, rack: str | None = None) -> list[int]:
        return wrote(lambda: driver.beat("A", epoch, topics, rack=rack))

    keys = {name: (TopicIdPartition(topic_id(name), 0),) for name in "tu"}
    assert beat(0, ["t"]) == [10, 11, 13, 12, 14, 15]
    assert finished(failed=keys["t"]) == [15]
    assert beat(2) == [15]
    assert finished(succeeded=keys["t"]) == [15]
    assert beat(2) == [11, 13, 12, 14]
    assert beat(3) == []
    assert beat(3, rack="r") == [10]
    assert beat(3, ["t", "u"]) == [10, 11, 12, 14, 15]
    assert finished(succeeded=keys["u"]) == [15]
    assert beat(4) == [11, 13, 12, 14]
    driver.create("t", 2)
    assert beat(5) == [11, 12, 14, 15]
    driver.delete("u")
    assert wrote(lambda: driver.run(c.Sweep(driver.now_ms))) == [15]
    assert beat(6) == [11, 13, 12, 14]
    driver.beat("B", 0, ["t"])
    assert wrote(lambda: driver.beat("B", -1)) == [-14, -13, -10, 11]
    assert wrote(lambda: driver.beat("A", -1)) == [-14, -13, -10, 11, 12]


@pytest.mark.rule("GC-35", "GC-24f")
def test_with_interval_0_the_second_heartbeat_already_delivers() -> None:
    driver = Driver()
    driver.create("t", 4)
    driver.beat("A", 0, ["t"])
    driver.initialize()
    assert driver.beat("A", 2)[1:4] == (3, 5_000, ALL)
