"""Streams replayed from Arrow, compared with a replay of each share-partition by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.ids import SharePartitionKey, topic_id_text
from kip932.records.v1 import owner_log_pb2 as owner_pb
from kip932.state_batches import StateBatch
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import RawEntry, decode, gap_row, to_batch
from share_metrics.replay.measuring import Part, measured
from share_metrics.replay.replay import Event, Replay
from share_metrics.replay.write_columns import Key
from tests.support.pipeline_entries import TOPIC, UNHURRIED, snapshot, state_entry, update

MINUTE = 60_000_000
NEEDED = Part.REPLAY.needed
CLAIM, GAP = "claim", "gap"
_TOPIC_TEXT = topic_id_text(TOPIC)
_BATCHES = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 3), st.sampled_from([0, 2, 3, 4]), st.integers(0, 5), st.integers(0, 3)
    ).map(lambda made: StateBatch(made[0], made[0] + made[1], made[2], made[3], 0 if made[2] else 61_001 * made[4])),
    max_size=3,
)
#: An entry of a stream: type, share-partition, seconds, start offset and state batches; and how many times the row
#: comes.
_ROW = st.tuples(
    st.sampled_from(["snapshot", "update", "update", "update", "tombstone", CLAIM, GAP]),
    st.integers(0, 1),
    st.integers(1, 300),
    st.one_of(st.just(-1), st.integers(0, 5)),
    _BATCHES,
    st.integers(1, 2),
)
Reported = tuple[str, int, int, int, list[StateBatch], int]


def replays(batches: Iterable[Any], window_us: int) -> Iterator[Mapping[Key, Replay]]:
    """The replays of each stream that has share-partitions."""
    return (found.replays for found in measured(batches, window_us, parts=Part.REPLAY) if found.replays)


def key_of(stream: int, number: int) -> SharePartitionKey:
    return SharePartitionKey(f"g{stream}", TOPIC, number)


def record_of(stream: int, reported: Reported) -> ShareRecord:
    record_type, number, _, start, batches, _ = reported
    key = key_of(stream, number)
    if record_type == "tombstone":
        return ShareTombstone(key)
    if record_type == "snapshot":
        return snapshot(max(start, 0), batches=batches, key=key)
    return update(start, batches=batches, key=key)


def row_of(stream: int, seq: int, reported: Reported) -> dict[str, Any]:
    name, at = f"{{sgs:{stream}}}:log", EntryId(1, seq)
    if reported[0] == GAP:
        return gap_row(Gap(name, EntryId(1, seq - 1), at, 1, "trimmed"))
    if reported[0] == CLAIM:
        claim = owner_pb.ClaimEntry(append_time_ms=reported[2] * 1000)
        return decode(Kind.SHARE_STATE, RawEntry(name, at, "C", claim.SerializeToString()))
    return decode(Kind.SHARE_STATE, state_entry(at, record_of(stream, reported), reported[2] * 1000, name))


def by_hand(streams: Sequence[Sequence[Reported]]) -> list[dict[Key, Replay]]:
    """The expected replays: each generated entry applied by itself to the replay of its share-partition."""
    found = []
    for stream, rows in enumerate(streams):
        made: dict[Key, Replay] = {}
        newest = losses = 0
        for record_type, number, second, start, batches, _ in rows:
            newest = newest if record_type == GAP else max(newest, second)
            losses += record_type == GAP
            if record_type in {CLAIM, GAP}:
                continue
            replay = made.setdefault((f"g{stream}", _TOPIC_TEXT, number), Replay(MINUTE))
            written = None if record_type == "tombstone" or start < 0 else start
            written = max(start, 0) if record_type == "snapshot" else written
            replay.apply(Event(record_type, newest * 1_000_000, losses, written, tuple(batches)))
        found += [made] if made else []
    return found


@pytest.mark.rule("PM-7", "PM-11", "PM-32", "PM-34")
@UNHURRIED
@given(st.lists(st.lists(_ROW, max_size=12), max_size=3), st.integers(1, 5))
def test_streams_cut_into_any_batches_replay_as_each_share_partition_does(
    streams: list[list[Reported]], rows_max: int
) -> None:
    rows = [
        row_of(stream, seq, reported)
        for stream, own in enumerate(streams)
        for seq, reported in enumerate(own, start=1)
        for _ in range(reported[-1])
    ]
    whole = to_batch(Kind.SHARE_STATE, rows).select(NEEDED)
    pieces = [whole.slice(at, rows_max) for at in range(0, len(rows), rows_max)]
    found = list(replays(pieces, MINUTE))
    expected = by_hand(streams)
    assert [list(made) for made in found] == [list(made) for made in expected]
    for made, own in zip(found, expected, strict=True):
        for key, replay in made.items():
            assert replay.windows == own[key].windows
            assert replay.poison() == own[key].poison()


@pytest.mark.rule("PM-11")
def test_a_gap_that_ends_at_an_entry_comes_before_it() -> None:
    reported: list[Reported] = [("snapshot", 0, 1, 0, [], 1), (GAP, 0, 0, 0, [], 1), ("update", 0, 61, -1, [], 1)]
    rows = [row_of(0, seq, one) for seq, one in zip((1, 2, 2), reported, strict=True)]
    (found,) = replays([to_batch(Kind.SHARE_STATE, rows)], MINUTE)
    assert [tally.incomplete for tally in found["g0", _TOPIC_TEXT, 0].windows.values()] == [False, True]


@pytest.mark.rule("PM-32", "PM-59", "PM-63")
def test_a_replay_hears_of_state_epochs() -> None:
    key, wait = key_of(0, 0), StateBatch(0, 9, 0, 1)
    records: list[ShareRecord] = [snapshot(0, key=key), update(batches=[wait], key=key)]
    records.append(snapshot(500, key=key, state_epoch=2))
    rows = [
        decode(Kind.SHARE_STATE, state_entry(EntryId(1, seq), record, 1_000 * seq))
        for seq, record in enumerate(records, start=1)
    ]
    (found,) = replays([to_batch(Kind.SHARE_STATE, rows)], MINUTE)
    assert found["g0", _TOPIC_TEXT, 0].windows[0].latencies_ms == []


@pytest.mark.rule("PM-7")
def test_without_any_time_a_record_lies_at_the_beginning() -> None:
    row = row_of(0, 1, ("snapshot", 0, 1, 7, [], 1)) | {"ts": None}
    (found,) = replays([to_batch(Kind.SHARE_STATE, [row])], MINUTE)
    assert list(found["g0", _TOPIC_TEXT, 0].windows) == [0]


@pytest.mark.rule("PM-78")
def test_rows_without_state_batches_are_refused() -> None:
    rows = [row_of(0, 1, ("snapshot", 0, 1, 0, [], 1)) | {"state_batches": None}]
    with pytest.raises(ValueError, match="a replay needs state batches"):
        list(replays([to_batch(Kind.SHARE_STATE, rows)], MINUTE))


@pytest.mark.rule("PM-32")
def test_a_stream_is_replayed_as_soon_as_the_next_one_begins() -> None:
    """Thus only one stream's state, and one batch of rows, is in memory at a time."""
    taken: list[int] = []

    def batches() -> Iterator[Any]:
        for stream in range(3):
            taken.append(stream)
            yield to_batch(Kind.SHARE_STATE, [row_of(stream, 1, ("snapshot", 0, 1, 7, [], 1))])

    found = replays(batches(), MINUTE)
    assert list(next(found)) == [("g0", _TOPIC_TEXT, 0)]
    assert taken == [0, 1]


def test_no_rows_make_no_replay() -> None:
    none = pa.RecordBatch.from_pylist([], schema=to_batch(Kind.SHARE_STATE, []).schema)
    assert list(replays([none], MINUTE)) == []
