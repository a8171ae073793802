"""The responses and decisions of a group shard while entries of its log are in quarantine."""

from __future__ import annotations

from typing import Any

import pytest

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import commands as c
from group_coordinator.core.records import ColdCopy, DeletedGroup, Record, ServedTime
from group_coordinator.core.shard import GroupShard
from kip932.errors import CoordinatorNotAvailableError
from shard_runtime.hosting.replay import BrokenRecordError
from shard_runtime.hosting.shard import DamagedEntry
from shard_runtime.record_log.protocol import ShardId, ShardKind, StreamId
from tests.support.damaged_logs import Raw, StoredLog
from tests.support.group_driver import Driver, bare, persisted

SHARD = ShardId(ShardKind.GROUP, "3")
FOUND = DamagedEntry("{gc:3}:log", "7-3", "is damaged: its checksum is 0", "g")


def two_groups() -> Driver:
    """Groups g and h with one member each, and the record of a deleted group."""
    driver = Driver()
    driver.create("t", 2)
    for group_id in ("g", "h"):
        driver.beat("m", 0, ["t"], group_id)
    driver.initialize()
    for group_id in ("g", "h"):
        driver.beat("m", driver.shard.groups[group_id].members["m"].epoch, group_id=group_id)
    driver.log.append(DeletedGroup("g", 3, driver.wall_ms))
    return driver


def hurt() -> GroupShard:
    """A shard with both groups, in whose log one entry of g is damaged."""
    driver = two_groups()
    shard = driver.new_shard()
    for number, record in enumerate(driver.log):
        if number == 2:
            assert shard.quarantine(FOUND)
        else:
            shard.replay(persisted(record))
    assert shard.loaded(driver.now_ms)
    return shard


@pytest.mark.rule("GC-158")
@pytest.mark.parametrize(
    "command",
    [
        c.Heartbeat("g", "m", 0, None, ("t",), "client", "host"),
        c.Heartbeat("g", "m", -1, None, None, "client", "host"),
        c.Describe("g"),
        c.OffsetsQuery("g"),
        c.DeleteGroup("g", 0, 1),
        c.RequireEmpty("g"),
        c.SessionExpired("g", "m"),
        c.InitializationFinished("g", 1),
        c.Repair("g", 5, ()),
    ],
    ids=lambda command: type(command).__name__,
)
def test_nothing_is_decided_about_a_damaged_group_and_the_refusal_names_the_entry(command: c.Command) -> None:
    with pytest.raises(
        CoordinatorNotAvailableError, match=r"group g is in quarantine: entry 7-3 of \{gc:3\}:log is damaged"
    ):
        hurt().decide(command, 2_000_000, 0)


@pytest.mark.rule("GC-158")
def test_other_groups_are_served_as_though_nothing_were() -> None:
    shard, driver = hurt(), two_groups()
    assert bare(dict(shard.groups)) == {"h": bare(dict(driver.shard.groups))["h"]}
    assert shard.decide(c.Describe("h"), driver.now_ms, driver.wall_ms).reply
    names = [tuple(group) for group in _reply(shard, c.ListAll())]
    assert names == [("h", "Stable", 1), ("g", "Unknown", None)]


@pytest.mark.rule("GC-158")
def test_of_a_damaged_group_nothing_expires_is_checked_or_is_written() -> None:
    shard = hurt()
    later_ms = 1 << 40
    assert [command.member_id for command in shard.due(later_ms) if command.group_id == "g"] == []  # type: ignore[union-attr]
    decided = shard.decide(c.RepairCheck(), later_ms, later_ms)
    assert [order.group_id for order in decided.effects] == ["h"]  # type: ignore[attr-defined]
    assert not shard.decide(c.ResumeDeletions(later_ms), later_ms, 1 << 50).records  # the deleted group's record stays
    assert {key[1] for key in _keys(shard)} == {"h"}


@pytest.mark.rule("GC-158")
def test_a_later_record_does_not_heal_a_group() -> None:
    shard = hurt()
    for record in two_groups().log:
        token = shard.replay(persisted(record))
        shard.undo(token)
        shard.replay(persisted(record))
    assert list(shard.groups) == ["h"]
    assert [found.at for found in shard.quarantined()] == ["7-3"]


@pytest.mark.rule("GC-158", "CM-107")
def test_without_the_groups_name_the_shard_is_not_served() -> None:
    assert not Driver().new_shard().quarantine(DamagedEntry("{gc:3}:log", "7-3", "is missing", None))


class Written:
    """The stored log of two groups, entry by entry."""

    def __init__(self) -> None:
        self.driver = two_groups()
        self.log = StoredLog(SHARD, GroupLogCodec())
        self.log.claim()
        self.log.append(self.driver.log[:-1])
        self.log.claim()
        self.log.noop()

    def judge(self, raw: list[Raw], skips: list[StreamId] | None = None) -> set[str] | None:
        """Replay `raw`; return the groups that are refused, or None if the whole shard is. All other groups must have
        the state that was written."""
        shard = self.driver.new_shard()
        try:
            self.log.replay(shard, raw, skips or [])
        except BrokenRecordError:
            return None
        refused = {str(found.key) for found in shard.quarantined()}
        served = {key: group for key, group in bare(dict(self.driver.shard.groups)).items() if key not in refused}
        assert bare(dict(shard.groups)) == served
        return refused


@pytest.mark.rule("CM-106", "CM-107", "GC-158")
@pytest.mark.parametrize("change", [1, 0x80])
def test_whatever_byte_of_a_log_changes_no_group_is_served_with_other_state(change: int) -> None:
    written = Written()
    seen = set()
    for at, field, place in written.log.every_byte():
        refused = written.judge(written.log.damaged(at, field, place, change))
        assert refused is not None
        assert len(refused) <= 1
        seen |= refused
    assert seen == {"g", "h"}


@pytest.mark.rule("CM-107", "GC-158")
def test_a_missing_entry_may_be_of_any_group() -> None:
    written = Written()
    assert written.judge(written.log.raw[:3] + written.log.raw[4:]) is None


@pytest.mark.rule("GC-158")
def test_a_damaged_count_of_time_served_leaves_the_older_one() -> None:
    written = Written()
    for served_ms in (5_000, 300_000):
        written.log.append([ServedTime(served_ms)])
    shard = written.driver.new_shard()
    written.log.replay(shard, written.log.damaged(len(written.log.raw) - 1, 3, 8, 1))
    assert not shard.quarantined()
    (copies,) = shard.rewrite([shard.anchor(ServedTime(0)).key], 0)
    assert copies == [ColdCopy(ServedTime(5_000))]


def test_a_damaged_group_is_whole_again_once_its_entry_is_skipped() -> None:
    written = Written()
    raw = written.log.damaged(1, 3, 20, 1)
    shard = written.driver.new_shard()
    written.log.replay(shard, raw, [StreamId(10, 1)])
    assert set(shard.groups) == {"g", "h"}
    assert not shard.quarantined()


def _reply(shard: GroupShard, command: c.Command) -> Any:
    return shard.decide(command, 2_000_000, 0).reply


def _keys(shard: GroupShard) -> list[tuple[int, str, str]]:
    """Return the keys of all records that a compaction would copy."""
    records: list[Record] = two_groups().log
    keys = [shard.anchor(record).key for record in records]
    copies = [copy.record for copied in shard.rewrite(keys, 0) for copy in copied]  # type: ignore[union-attr]
    return [(0, copy.group_id, "") for copy in copies]
