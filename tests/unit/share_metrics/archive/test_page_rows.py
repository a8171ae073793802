"""Rows that a page needs, compared with a plain selection from all rows; and the files opened for them. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from kip932.ids import topic_id_text
from kip932.state_batches import WriteStats
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.archive import page_rows
from share_metrics.archive.kept_rows import read_table
from share_metrics.archive.page_rows import PageFiles, newest_time, watermarks
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import decode, gap_row, to_batch
from share_metrics.reader.schemas import GAP
from tests.support.kept_files import keep
from tests.support.pipeline_entries import KEY, STREAM, TOPIC, snapshot, state_entry, update

BASE_S: Final = 36_000
HOUR_S: Final = 3_600
KEYS: Final = [KEY._replace(partition=number) for number in range(4)]
STREAMS: Final = (STREAM, "{sgs:1}:log", "{sgs:2}:log")

Row = dict[str, Any]


def at(hours: float) -> datetime:
    return datetime.fromtimestamp(BASE_S + hours * HOUR_S, UTC)


def row(stream: str, seq: int, second: int, record: ShareRecord) -> Row:
    written = decode(Kind.SHARE_STATE, state_entry(EntryId(1, seq), record, (BASE_S + second) * 1_000, stream))
    rows: list[Row] = to_batch(Kind.SHARE_STATE, [written]).to_pylist()
    return rows[0]


def day(seed: int, stream: str) -> Iterator[Row]:
    """A random history of a day: idle share-partitions, gaps, owners whose clocks are hours fast or slow."""
    random, second = Random(seed), 0
    for seq in range(1, 150):
        second += random.randrange(1_200)
        key = random.choice(KEYS if seq % 50 > 30 else KEYS[:2])._replace(group_id=stream)
        updates: list[ShareRecord] = [update(seq, key=key)] * 6
        record = random.choice([snapshot(seq, key=key), *updates, update(-1, key=key), ShareTombstone(key)])
        skew = random.choice([0, 0, 0, 0, 0, 0, -3 * HOUR_S, 3 * HOUR_S]) if 60 < seq < 100 else 0
        yield row(stream, seq, max(second + skew, 0), record)
        if seq % 40 == 0:
            reason = random.choice(("missing", "tail"))
            gap = Gap(stream, EntryId(1, seq - 1), EntryId(1, seq), 3, reason)
            yield to_batch(Kind.SHARE_STATE, [gap_row(gap)]).to_pylist()[0]


def needed(rows: Sequence[Row], begin: datetime, end: datetime) -> list[tuple[str, str, str]]:
    """The rows of one stream that PM-7 and PM-32 name, by stream, id and type."""
    ordered = sorted(rows, key=lambda one: one["seq"])
    began = min((one["seq"] for one in ordered if one["ts"] and one["ts"] >= begin), default=1 << 40)
    ended = min((one["seq"] for one in ordered if one["ts"] and one["ts"] >= end), default=1 << 40)
    bases: dict[int, int] = {}
    old = [one for one in ordered if one["ts"] and one["seq"] < min(began, ended) and one["start_offset"] is not None]
    for kind in ("update", "snapshot"):
        bases |= {one["partition"]: one["seq"] for one in old if one["record_type"] == kind}
    return [
        (one["stream"], one["entry_id"], one["record_type"])
        for one in ordered
        if one["ts"] is None
        or (one["seq"] < ended and (one["seq"] >= began or one["seq"] >= bases.get(one["partition"], 1 << 40)))
    ]


def stored(data: Path) -> dict[str, list[Row]]:
    """Store a day of three streams, in three batches; return the rows by stream."""
    days = {stream: list(day(number, stream)) for number, stream in enumerate(STREAMS)}
    for number in range(3):
        rows = [one for own in days.values() for one in own if one["seq"] // 50 == number]
        keep(data, Kind.SHARE_STATE, rows, number)
    return days


@pytest.mark.rule("PM-7", "PM-32", "PM-111")
@pytest.mark.parametrize("at_once", [1, 200, 300_000])
def test_the_rows_of_a_page_are_read_whatever_the_files_and_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(page_rows, "ROWS_AT_ONCE", at_once)
    days = stored(tmp_path)
    for begin, end in ((2.0, 4.5), (9.5, 11.0), (14.0, 30.0), (40.0, 41.0)):
        tables = list(PageFiles(tmp_path, at(begin), at(end)).states())
        found = [one for table in tables for one in table.select(["stream", "entry_id", "record_type"]).to_pylist()]
        expected = [one for stream in STREAMS for one in needed(days[stream], at(begin), at(end))]
        assert sorted(tuple(one.values()) for one in found) == sorted(expected) != []
        assert len(tables) in {1: {3}, 200: {1, 2, 3}, 300_000: {1}}[at_once]


@pytest.mark.rule("PM-11", "PM-111")
def test_rows_come_in_the_order_of_ids_with_a_gap_before_its_entry_and_a_lost_tail_after_it(tmp_path: Path) -> None:
    rows = [row(STREAM, seq, seq, snapshot(seq)) for seq in range(1, 6)]
    rows += [gap_row(Gap(STREAM, EntryId(1, 2), EntryId(1, 3), 1, "missing"))]
    rows += [gap_row(Gap(STREAM, EntryId(1, 3), EntryId(1, 4), 1, "tail"))]
    Random(1).shuffle(rows)
    keep(tmp_path, Kind.SHARE_STATE, rows, 0)
    (table,) = PageFiles(tmp_path, at(0), at(1)).states()
    assert [(one["seq"], one["record_type"] == GAP) for one in table.select(["seq", "record_type"]).to_pylist()] == [
        (1, False), (2, False), (3, True), (3, False), (4, False), (4, True), (5, False)
    ]  # fmt: skip


@pytest.mark.rule("PM-32", "PM-111")
def test_files_of_hours_that_nothing_is_needed_of_are_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten hours from ten o'clock, each a batch; one share-partition's last snapshot is from the second hour."""
    for hour in range(10):
        rows = [row(STREAM, 2 * hour + 1, hour * HOUR_S, snapshot(hour))]
        rows += [row(STREAM, 4, HOUR_S + 1, snapshot(7, key=KEYS[1]))] if hour == 1 else []
        keep(tmp_path, Kind.SHARE_STATE, rows, hour)
    whole: set[str] = set()

    def noted(files: Sequence[str], kind: Kind, columns: Any, wanted: Any) -> Any:
        if "state_batches" in columns:
            whole.update(part for file in files for part in Path(file).parts if part.startswith("hour="))
        return read_table(files, kind, columns, wanted)

    monkeypatch.setattr(page_rows, "read_table", noted)
    (table,) = PageFiles(tmp_path, at(6), at(7.5)).states()
    assert table["seq"].to_pylist() == [4, 11, 13, 15]
    assert whole == {"hour=11", "hour=15", "hour=16", "hour=17"}


@pytest.mark.rule("PM-111")
def test_a_row_of_an_older_hour_counts_as_a_tenth(tmp_path: Path) -> None:
    keep(tmp_path, Kind.SHARE_STATE, [row(STREAM, seq, seq, snapshot(seq)) for seq in range(1, 101)], 0)
    keep(tmp_path, Kind.SHARE_STATE, [row(STREAM, seq, 5 * HOUR_S + seq, snapshot(seq)) for seq in range(101, 131)], 1)
    assert PageFiles(tmp_path, at(5), at(6)).weigh(1_000) == 30 + 10
    assert PageFiles(tmp_path, at(0), at(6)).weigh(1_000) == 130
    assert PageFiles(tmp_path, at(0), at(6)).weigh(20) > 20


@pytest.mark.rule("PM-37")
def test_the_newest_row_and_what_leaders_have_seen_of_logs(tmp_path: Path) -> None:
    assert newest_time(tmp_path) is None
    seen = [WriteStats(hwm=hwm) for hwm in (70, 50, 90)]
    other = KEYS[0]._replace(group_id="G2")
    rows = [
        row(STREAM, 1, 5, snapshot(0, key=KEYS[0], stats=seen[0])),
        row(STREAM, 2, HOUR_S, snapshot(0, key=other, stats=seen[1])),
        row(STREAM, 3, 3, update(1, key=KEYS[0])),
        row(STREAM, 4, 4, snapshot(0, key=KEYS[1], stats=seen[2])),
        row(STREAM, 5, 5, ShareTombstone(KEYS[1])),
        row(STREAM, 6, 5, snapshot(0, key=KEYS[2])),
    ]
    keep(tmp_path, Kind.SHARE_STATE, rows, 0)
    assert newest_time(tmp_path) == at(1)
    topic = topic_id_text(TOPIC)
    assert watermarks(tmp_path) == {(topic, 0): 50, (topic, 2): 0}


@pytest.mark.rule("PM-7", "PM-111")
def test_rows_of_an_owner_whose_clock_is_slow_are_read_with_those_around_them(tmp_path: Path) -> None:
    """They are in files of older hours, in two batches; the newer one has a snapshot of the same one."""
    keep(tmp_path, Kind.SHARE_STATE, [row(STREAM, 1, 10 * HOUR_S, snapshot(0)), row(STREAM, 2, 3, update(5))], 0)
    keep(tmp_path, Kind.SHARE_STATE, [row(STREAM, 3, 4, snapshot(7))], 1)
    (table,) = PageFiles(tmp_path, at(9), at(11)).states()
    assert table["seq"].to_pylist() == [1, 2, 3]
