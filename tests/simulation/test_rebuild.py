"""How a reader rebuilds the share-state streams: the rules of replay, and entries that no coordinator writes."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.ids import SharePartitionKey
from kip932.records.share_state import batches_to_messages
from kip932.records.v1 import share_state_log_pb2 as pb
from kip932.state_batches import StateBatch
from tests.simulation.rebuild import Fields, Rebuilding, Rebuilt

KEY = SharePartitionKey("g", bytes(16), 0)
NAME = pb.ShareStateRecord.Key(group_id="g", topic_id=bytes(16), partition=0)
CLAIM = (b"t", b"C", b"r", b"")


def entry(kind: bytes, record: pb.ShareStateRecord) -> Fields:
    return b"t", kind, b"r", record.SerializeToString()


def snapshot(epoch: int, start: int = 0, finished: int | None = 0, *batches: StateBatch) -> Fields:
    value = pb.ShareSnapshot(
        snapshot_epoch=epoch,
        state_epoch=2,
        leader_epoch=0,
        start_offset=start,
        delivery_complete_count=finished,
        state_batches=batches_to_messages(batches),
    )
    return entry(b"S", pb.ShareStateRecord(key=NAME, snapshot=value))


def update(epoch: int, start: int, finished: int, *batches: StateBatch, leader: int = 7) -> Fields:
    value = pb.ShareUpdate(
        snapshot_epoch=epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=finished,
        state_batches=batches_to_messages(batches),
    )
    return entry(b"U", pb.ShareStateRecord(key=NAME, update=value))


TOMBSTONE = entry(b"T", pb.ShareStateRecord(key=NAME))


def read(*entries: Fields, **options: Any) -> Rebuilding:
    reading = Rebuilding(**options)
    reading.read(entries)
    reading.finish()
    return reading


@pytest.mark.rule("SC-55", "SC-56")
def test_updates_change_what_their_snapshot_says() -> None:
    reading = read(
        CLAIM, snapshot(0, -1, None), update(0, 5, 0), update(0, 5, 2, StateBatch(6, 7, 2, 1)), update(0, 7, 1)
    )
    assert reading.states == {KEY: Rebuilt(0, 2, 7, 7, 1, (StateBatch(7, 7, 2, 1),))}
    assert reading.torn == []


@pytest.mark.rule("SC-41", "SC-42")
def test_a_late_update_moves_nothing_back() -> None:
    reading = read(snapshot(0, 5, 3), update(0, 4, 9), update(0, 5, 2, leader=-1))
    assert reading.states == {KEY: Rebuilt(0, 2, 7, 5, 3, ())}


@pytest.mark.rule("SC-57")
def test_a_tombstone_ends_a_state_and_snapshots_begin_at_0_again() -> None:
    assert read(snapshot(3), TOMBSTONE).states == {}
    assert read(snapshot(3), TOMBSTONE, snapshot(0)).torn == []


@pytest.mark.rule("SC-54")
def test_snapshot_epochs_rise_by_one() -> None:
    assert read(snapshot(4), snapshot(5), snapshot(6)).torn == []
    assert len(read(snapshot(4), snapshot(4)).torn) == 1
    assert len(read(snapshot(4), snapshot(6)).torn) == 1
    assert len(read(snapshot(4), update(3, 0, 0)).torn) == 1


def test_they_may_skip_where_the_store_may_lose_a_tail() -> None:
    assert read(snapshot(4), snapshot(6), tails_may_be_lost=True).torn == []
    assert len(read(snapshot(4), snapshot(3), tails_may_be_lost=True).torn) == 1


@pytest.mark.rule("SC-70")
def test_an_update_may_outlive_its_snapshot_only_until_the_next_one() -> None:
    assert read(update(3, 0, 0), snapshot(4)).torn == []
    assert len(read(update(3, 0, 0)).torn) == 1
