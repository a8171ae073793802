"""No changed byte of a share-state log goes unnoticed: the state served is what was written, or the request is
refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kip932.entry_checksum import key_of
from kip932.errors import CoordinatorNotAvailableError
from kip932.ids import SharePartitionKey
from kip932.state_values import DeleteState, ReadSummary, StateSummary
from shard_runtime.record_log.protocol import ShardId, ShardKind, StreamId
from shard_runtime.record_log.settlements import Choice, Settlement
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareTombstone
from share_coordinator.core.shard import ShareStateShard
from tests.support.damaged_logs import Raw, StoredLog, flipped
from tests.support.share_state import COLD_MS, TOPIC, Driver, Metadata, initialize, read, write

KEYS = [SharePartitionKey(group, TOPIC, number) for group in ("a", "bb") for number in range(2)]
SHARD = ShardId(ShardKind.SHARE_STATE, "3")


class Written:
    """A log of several owners and share-partitions, and the state written in it."""

    def __init__(self, steps: list[tuple[int, int]]) -> None:
        self.driver = Driver(updates_per_snapshot=3)
        self.log = StoredLog(SHARD, ShareStateCodec())
        self.log.claim()
        for number, (which, what) in enumerate(steps):
            self._step(KEYS[which], what, number)

    def _step(self, key: SharePartitionKey, what: int, number: int) -> None:
        if what == 0:
            self.log.claim()
        elif what == 1:
            self.log.noop()
        elif self.driver.shard.state(key) is None:
            self.log.append(self.driver.written(initialize(5, number, key=key)))
        elif what == 2:
            self.log.append(self.driver.written(DeleteState(key)))
        elif what == 3:
            self.log.append(self.driver.written(read(100 + number, key=key)))
        else:
            done = write((number + 50, number + 59, 2, 1), start=number, state=50_000, leader=50_000, key=key)
            self.log.append(self.driver.written(done))

    def judge(self, raw: list[Raw]) -> tuple[set[SharePartitionKey], ShareStateShard]:
        """Return the keys that are refused after a replay of `raw`; the served state must be what was written."""
        shard = ShareStateShard(Metadata(), 3, COLD_MS)
        with capture_logs():
            self.log.replay(shard, raw)
        refused = set()
        for key in KEYS:
            try:
                shard.decide(ReadSummary(key), 0, 0)
            except CoordinatorNotAvailableError:
                refused.add(key)
            else:
                assert shard.state(key) == self.driver.shard.state(key)
        return refused, shard


FIXED = Written(
    [(0, 9), (1, 9), (0, 4), (1, 4), (2, 9), (0, 0), (0, 3), (0, 4), (1, 4), (1, 1), (0, 4), (2, 2), (3, 9)]
)


@pytest.mark.rule("CM-106", "CM-107", "SC-113", "SC-114")
@pytest.mark.parametrize("change", [1, 0x80])
def test_whatever_byte_of_a_log_changes_no_share_partition_is_served_with_other_state(change: int) -> None:
    keys = Counter(key_of(fields[3]) for _, fields in FIXED.log.raw)
    for at, field, place in FIXED.log.every_byte():
        refused, _ = FIXED.judge(FIXED.log.damaged(at, field, place, change))
        fields = FIXED.log.raw[at][1]
        if keys[key_of(fields[3])] > 1:  # a damaged key is recognised if another entry has the same key
            assert len(refused) <= 1
        if field % 2 and fields[field - 1] == b"k":
            assert not refused  # the entry itself is intact


@pytest.mark.rule("CM-106", "SC-113")
@pytest.mark.parametrize("hit", [(0, 4), (2, 4), (0, 2, 4), (4,), (4, 6)])
def test_an_entry_the_names_of_whose_fields_are_hit_is_not_taken_for_an_older_one(hit: tuple[int, ...]) -> None:
    written = Written([(0, 9)])
    raw = [(raw_id, list(fields)) for raw_id, fields in written.log.raw]
    for name in hit:
        raw[1][1][name] = b"x"
    refused, _ = written.judge(raw)
    assert KEYS[0] in refused


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Written, list[Raw]]:
    """Draw a log in which up to two entries have bytes changed, removed or added."""
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=25))
    written = Written(steps)
    raw = [(raw_id, list(fields)) for raw_id, fields in written.log.raw]
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(raw) - 1))
        fields = raw[at][1]
        field = draw(st.integers(0, len(fields) - 1))
        how = draw(st.sampled_from(["bits", "cut", "gone"]))
        if how == "gone" and at < len(raw) - 1:
            del raw[at]
            if not _noticed(raw, at):
                return written, list(written.log.raw)
        elif how == "cut":
            fields[field] = fields[field][: draw(st.integers(0, len(fields[field])))]
        elif fields[field]:
            place = draw(st.integers(0, len(fields[field]) - 1))
            fields[field] = flipped(fields[field], place, draw(st.integers(1, 255)))
    return written, raw


def _noticed(raw: list[Raw], at: int) -> bool:
    """Return True if a hole before entry `at` is noticed: not if the missing entry was the last of its epoch, or the
    first of all."""
    return at > 0 and not raw[at][0].endswith(b"-0")


@pytest.mark.rule("CM-107", "SC-113", "SC-114")
@given(damaged())
def test_whatever_becomes_of_entries_no_share_partition_is_served_with_other_state(
    case: tuple[Written, list[Raw]],
) -> None:
    written, raw = case
    written.judge(raw)


@pytest.mark.rule("CM-107", "SC-113")
def test_of_an_entry_that_is_gone_every_share_partition_may_be_that_no_later_snapshot_shows_whole() -> None:
    written = Written([(0, 9), (1, 9), (2, 9), (0, 4), (1, 4), (1, 4), (1, 4), (1, 4), (2, 2)])
    kinds = [fields[1] for _, fields in written.log.raw]
    assert kinds == [b"C", b"S", b"S", b"S", b"U", b"U", b"U", b"U", b"S", b"T"]
    refused, shard = written.judge(written.log.raw[:4] + written.log.raw[5:])
    assert refused == {KEYS[0], KEYS[3]}  # KEYS[3] has no entry: the missing one may have been its first
    assert [(found.at, found.key) for found in shard.quarantined()] == [("10-5", None)]


@pytest.mark.rule("CM-107", "SC-113")
def test_a_snapshot_after_the_damage_makes_its_share_partition_whole() -> None:
    written = Written([(0, 9), (0, 4), (1, 9), (0, 4), (0, 4), (0, 4)])
    assert [fields[1] for _, fields in written.log.raw] == [b"C", b"S", b"U", b"S", b"U", b"U", b"S"]
    for at in (1, 2, 4, 5):
        refused, shard = written.judge(written.log.damaged(at, 3, 30, 1))
        assert not refused
        assert not shard.quarantined()
    assert written.judge(written.log.damaged(6, 3, 30, 1))[0] == {KEYS[0]}


@pytest.mark.rule("SC-55", "SC-113")
@pytest.mark.parametrize("skips", [(), [StreamId(10, 3)]])
def test_a_share_partition_that_was_made_again_is_not_fenced_by_the_life_before_a_damaged_tombstone(
    skips: list[StreamId],
) -> None:
    written = Written([(0, 9), (0, 3), (0, 2)])
    written.log.append(written.driver.written(initialize(2, 0, key=KEYS[0])))
    assert [fields[1] for _, fields in written.log.raw] == [b"C", b"S", b"U", b"T", b"S"]
    shard = ShareStateShard(Metadata(), 3, COLD_MS)
    written.log.replay(shard, written.log.damaged(3, 1, 0, 1), skips=skips)
    assert shard.decide(read(7, key=KEYS[0]), 0, 0).reply == written.driver.run(read(7, key=KEYS[0]))
    done = write((1, 9, 2, 1), start=0, state=2, leader=7, key=KEYS[0])
    assert shard.decide(done, 0, 0).reply == written.driver.run(done)


@pytest.mark.rule("CM-103", "SC-113")
def test_what_an_operator_skipped_is_as_though_it_had_never_been() -> None:
    written = Written([(0, 9), (0, 4), (0, 4)])
    raw = written.log.damaged(2, 3, 30, 1)
    shard = ShareStateShard(Metadata(), 3, COLD_MS)
    result, _ = written.log.replay(shard, raw, skips=[StreamId(10, 2)])
    assert (result.skipped, result.quarantined) == (1, 0)
    without: Any = ShareStateShard(Metadata(), 3, COLD_MS)
    for record in (written.driver.log[0], written.driver.log[2]):
        without.replay(record)
    assert shard.state(KEYS[0]) == without.state(KEYS[0])
    assert shard.decide(ReadSummary(KEYS[0]), 0, 0).reply is not None


@pytest.mark.rule("CM-114", "SC-113")
def test_what_an_operator_dropped_is_refused_until_its_tombstone_is_stored_and_is_gone_then() -> None:
    written = Written([(0, 9), (1, 9), (0, 4), (0, 4)])
    raw = written.log.damaged(1, 3, 30, 1)
    drop = {StreamId(10, 1): Settlement(Choice.DROP)}
    shard = ShareStateShard(Metadata(), 3, COLD_MS)
    written.log.replay(shard, raw, skips=drop)
    with pytest.raises(CoordinatorNotAvailableError):
        shard.decide(ReadSummary(KEYS[0]), 0, 0)
    (command,) = shard.loaded(0)
    (tombstone,) = shard.decide(command, 0, 0).records
    assert tombstone == ShareTombstone(KEYS[0])
    token = shard.replay(tombstone)
    shard.undo(token)  # refused by the store: the owner reads the log again and replays it from the start
    assert shard.quarantined()
    shard.replay(tombstone)
    assert not shard.quarantined()
    assert shard.decide(ReadSummary(KEYS[0]), 0, 0).reply == StateSummary()
    assert shard.state(KEYS[1]) == written.driver.shard.state(KEYS[1])
    assert not shard.decide(command, 0, 0).records  # repeating it has no further effect
    again = ShareStateShard(Metadata(), 3, COLD_MS)
    written.log.append([tombstone])
    written.log.replay(again, raw + written.log.raw[-1:], skips=drop)
    assert not again.loaded(0)
