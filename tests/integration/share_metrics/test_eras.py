"""Where one state of a share-partition ends and the next begins, and the state before a time range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from kip932.ids import SharePartitionKey
from kip932.state_batches import NO_STATS, StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareTombstone
from share_metrics.gauges.gauges import Gauges
from share_metrics.metrics import progress, replay_windows
from share_metrics.metrics.common import since, timed
from share_metrics.metrics.newest import newest_states
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import decode
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, snapshot, state_entry, update

from .frames import BASE_S, frame, rows_of, states

Reported = Sequence[tuple[int, ShareRecord]]

AHEAD = WriteStats(hwm=1_100, speo=1_060)
RESET: Reported = [
    (0, snapshot(1_000, stats=AHEAD)),
    (1, update(1_010, 5, stats=AHEAD)),
    (2, snapshot(0, state_epoch=2)),
    (3, update(7, 1)),
]
RECREATED: Reported = [
    (0, snapshot(1_000, 20, stats=AHEAD)),
    (1, ShareTombstone(KEY)),
    (2, snapshot(0, -1)),
    (3, update(7, -1)),
]


def shown(gauges: Gauges) -> dict[str, float]:
    return {
        sample.name.removeprefix("sharegroups_ingest_share_group_"): sample.value
        for family in gauges.collect()
        for sample in family.samples
        if "partition" in sample.labels
    }


@pytest.mark.rule("PM-42", "PM-50", "PM-59")
@pytest.mark.parametrize(("reported", "done"), [(RESET, 8), (RECREATED, 7)])
def test_a_window_shows_nothing_of_an_earlier_state(spark: SparkSession, reported: Reported, done: int) -> None:
    (found,) = rows_of(progress(states(spark, reported)), "window")
    assert (found["spso"], found["done"]) == (7, done)
    assert [found[name] for name in ("hwm", "speo", "lag", "in_flight_width")] == [None] * 4


@pytest.mark.rule("PM-38", "PM-42", "PM-50")
@pytest.mark.parametrize(("reported", "done"), [(RESET, 8), (RECREATED, 7)])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_gauges_show_nothing_of_an_earlier_state_however_rows_come(
    spark: SparkSession, reported: Reported, done: int, cut: int
) -> None:
    gauges = Gauges(now=lambda: BASE_S + 10.0)
    for part in (reported[:cut], reported[cut:]):
        if part:
            gauges.take(Kind.SHARE_STATE, states(spark, part))
    found = shown(gauges)
    assert (found["start_offset"], found["finished_offset"]) == (7, done)
    assert not {"lag", "in_flight_width"} & set(found)


@pytest.mark.rule("PM-38", "PM-42")
def test_a_snapshot_of_the_same_state_epoch_leaves_what_is_known(spark: SparkSession) -> None:
    gauges = Gauges(now=lambda: BASE_S + 10.0)
    gauges.take(Kind.SHARE_STATE, states(spark, [(0, snapshot(10, stats=WriteStats(hwm=50, speo=20)))]))
    gauges.take(Kind.SHARE_STATE, states(spark, [(1, update(12)), (2, snapshot(12, write_ms=9_000))]))
    assert (shown(gauges)["lag"], shown(gauges)["in_flight_width"]) == (38, 8)


def lives(random: Random) -> Iterator[ShareRecord]:
    """Yield records of share-partitions that advance, are reset and are created again; some writes report the high
    watermark and the end of delivery."""
    for number in range(60):
        key, epoch, offset = SharePartitionKey(f"g{number}", TOPIC, 0), 1, 0
        yield snapshot(0, key=key, stats=WriteStats(hwm=500, speo=60))
        for _ in range(random.randrange(8)):
            offset += random.randrange(9)
            stats = random.choice([NO_STATS, WriteStats(hwm=offset + 100, speo=offset + 10)])
            what = random.choice(["recreated", "reset", "snapshot", *["update"] * 6])
            if what == "recreated":
                yield ShareTombstone(key)
            epoch += what in {"recreated", "reset"}
            if what == "update":
                yield update(offset, random.randrange(3), key=key, stats=stats)
            else:
                offset = random.randrange(50) if what == "reset" else offset
                yield snapshot(offset, random.randrange(-1, 3), key=key, state_epoch=epoch, stats=stats)


def oracle(records: Sequence[ShareRecord]) -> dict[str, dict[str, int | None]]:
    """Return what is finally known of each group, computed record by record: nothing outlives a tombstone or an
    epoch."""
    known: dict[str, dict[str, int]] = {}
    for one in records:
        if isinstance(one, ShareTombstone):
            del known[one.key.group_id]
            continue
        state = known.setdefault(one.key.group_id, {})
        if isinstance(one, ShareSnapshot) and state.get("epoch") != one.state_epoch:
            state.clear()
            state["epoch"] = one.state_epoch
        state |= {"start": one.start_offset, "done": one.start_offset + max(one.delivery_complete_count, 0)}
        state |= {name: value for name in ("hwm", "speo") if (value := getattr(one.stats, name)) is not None}
    return {
        group: {
            "spso": state["start"],
            "done": state["done"],
            "lag": max(state["hwm"] - state["done"], 0) if "hwm" in state else None,
            "in_flight_width": max(state["speo"] - state["start"], 0) if "speo" in state else None,
        }
        for group, state in known.items()
    }


@pytest.mark.rule("PM-30", "PM-38", "PM-42", "PM-50", "PM-68")
def test_windows_and_gauges_of_rows_in_any_cut_end_as_the_oracle_does(spark: SparkSession) -> None:
    random = Random(5)
    records = list(lives(random))
    reported = [state_entry(EntryId(1, seq), record, BASE_S * 1_000) for seq, record in enumerate(records, start=1)]
    rows = [decode(Kind.SHARE_STATE, entry) for entry in reported]
    expected = oracle(records)
    assert 5 < sum(one["lag"] is None for one in expected.values()) < 55
    windows = rows_of(progress(frame(spark, Kind.SHARE_STATE, rows), 3_600), "group_id")
    names = {"spso": "start_offset", "done": "finished_offset", "lag": "lag", "in_flight_width": "in_flight_width"}
    assert {row["group_id"]: {name: row[name] for name in names} for row in windows} == expected
    gauges = Gauges(now=lambda: BASE_S + 10.0)
    cuts = [0, *sorted(random.sample(range(1, len(rows)), 4)), len(rows)]
    for begin, end in pairwise(cuts):
        gauges.take(Kind.SHARE_STATE, frame(spark, Kind.SHARE_STATE, rows[begin:end]))
    found = {
        (sample.labels["group"], sample.name.removeprefix("sharegroups_ingest_share_group_")): sample.value
        for family in gauges.collect()
        for sample in family.samples
        if "partition" in sample.labels
    }
    for group, values in expected.items():
        assert {name: found.get((group, shown)) for name, shown in names.items()} == values


@pytest.mark.rule("PM-43")
def test_a_cold_copy_is_no_write_whether_or_not_it_says_so(spark: SparkSession) -> None:
    copies = [snapshot(10, create_ms=1_000, write_ms=5_000, stats=stats) for stats in (NO_STATS, WriteStats(cause=64))]
    rows = states(spark, [(0, snapshot(10)), *((1, copy) for copy in copies)]).localCheckpoint()
    assert rows_of(newest_states(rows), "group_id")[0]["writes"] == 1
    assert rows_of(progress(rows), "window")[0]["writes"] == 1


@pytest.mark.rule("PM-32", "PM-41")
def test_what_was_finished_in_a_range_needs_no_snapshot_before_it(spark: SparkSession) -> None:
    rows = states(spark, [(0, update(5)), (1, update(10)), (2, update()), (7_200, update(25)), (7_260, update(30))])
    begin = F.timestamp_seconds(F.lit(BASE_S + 3_600))
    found = rows_of(progress(since(rows, begin)), "window")
    assert [(row["entries"], row["finished_count"]) for row in found] == [(2, 0), (1, 15), (1, 5)]


@pytest.mark.rule("PM-32")
def test_a_range_begins_at_the_last_snapshot_before_it_however_long_ago(spark: SparkSession) -> None:
    # Each record names a start offset: without a snapshot, a range starts at the last such record.
    released = [update(start, batches=[StateBatch(at, at, 0, 1)]) for start, at in ((0, 0), (5, 5), (5, 6))]
    reported: Reported = [(0, snapshot(0)), (1, released[0]), (2, snapshot(5)), (3, released[1]), (90_000, released[2])]
    rows = states(spark, reported)
    recent = since(rows, F.timestamp_seconds(F.lit(BASE_S + 86_400))).localCheckpoint()
    assert [row["seq"] for row in rows_of(recent, "seq")] == [3, 4, 5]
    windows = rows_of(replay_windows(recent), "window")
    assert [(row["released_lb"], row["in_flight_batches"], row["incomplete"]) for row in windows] == [
        (1, 1, False),
        (1, 1, False),
    ]


@pytest.mark.rule("PM-11", "PM-32")
def test_a_lost_tail_stands_behind_what_was_read_of_it(spark: SparkSession) -> None:
    """1-2 and 1-3 were read, then lost; the next owner does not have them, and its update comes after the loss."""
    rows = states(
        spark,
        [
            (0, snapshot(0)),
            (10, update(batches=[StateBatch(0, 4, 0, 1)])),
            (20, snapshot(5)),
            Gap(STREAM, EntryId(1, 1), EntryId(1, 3), 2, "tail"),
            (40, update(0, batches=[StateBatch(0, 4, 2, 1)])),
        ],
    ).localCheckpoint()
    windows = [(row["window"].second, row["incomplete"]) for row in rows_of(replay_windows(rows, 10), "window")]
    assert windows == [(0, False), (10, False), (20, False), (40, True)]
    losses = rows_of(timed(rows).where("record_type != 'gap'"), "seq")
    assert [row["losses"] for row in losses] == [0, 0, 0, 1]


@pytest.mark.rule("PM-11")
def test_two_gaps_at_one_entry_are_two(spark: SparkSession) -> None:
    """Entries trimmed before an entry, and the tail that was lost with it, end at the same id."""
    gaps = [Gap(STREAM, EntryId(1, 0), EntryId(1, 3), 2, reason) for reason in ("trimmed", "tail")]
    rows = states(spark, [*gaps, (0, snapshot(0)), (1, update(1))])
    losses = rows_of(timed(rows.unionByName(rows)).where("record_type != 'gap'"), "seq")
    assert [row["losses"] for row in losses] == [1, 2]
