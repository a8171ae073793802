"""Pages that this process makes from files: their numbers, and that neither batches nor parts change them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records as r
from kip932.ids import SharePartitionKey, topic_id_text
from kip932.state_batches import StateBatch, WriteStats
from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.archive import page_rows
from share_metrics.ingest.log_samples import stored_samples
from share_metrics.reader import EntryId, Kind
from share_metrics.reader.decoding import RawEntry, decode
from share_metrics.report import Known, Report, assembled, figures, render
from share_metrics.report.by_process import collect_here
from share_metrics.report.model import SHOWN_MAX
from tests.support.kept_files import keep
from tests.support.kept_history import History
from tests.support.pipeline_entries import KEY, TOPIC, snapshot, state_entry, update

BASE_S = 36_000
UP_TO_100 = WriteStats(hwm=100)
OTHER = SharePartitionKey("G2", TOPIC, 1)
Samples = Sequence[tuple[int, int, int]]


def time(second: int) -> datetime:
    return datetime.fromtimestamp(BASE_S + second, UTC)


def page(
    data: Path, reported: Sequence[tuple[int, ShareRecord]], end: int, samples: Samples = (), known: int | None = None
) -> Report:
    """The page from the beginning to `end`, s, of these records of one stream, with samples of (second, partition,
    end)."""
    rows = [
        decode(Kind.SHARE_STATE, state_entry(EntryId(1, seq), record, (BASE_S + at) * 1_000))
        for seq, (at, record) in enumerate(sorted(reported, key=lambda one: one[0]), start=1)
    ]
    keep(data, Kind.SHARE_STATE, rows, 0)
    if samples:
        topic = topic_id_text(TOPIC)
        plain = [(topic, index, 0, hwm, hwm, time(at)) for at, index, hwm in samples]
        path = data / "log_ends" / f"dt={time(0):%Y-%m-%d}" / f"{time(0):%H}.parquet"
        path.parent.mkdir(parents=True)
        columns = [list(column) for column in zip(*plain, strict=True)]
        pq.write_table(pa.table(columns, schema=stored_samples(data).schema), path)
    return collect_here(data, time(0), time(end), 60, Known(time(end if known is None else known)))


def leave(data: Path, group_id: str) -> None:
    """Store the records of a group whose only member has left."""
    records: list[r.Record] = [
        r.MemberMetadata(group_id, "m", None, "c", "h", ("t",)),
        r.Tombstone(r.MEMBER, group_id, "m", "left"),
    ]
    rows = []
    for seq, record in enumerate(records, start=1):
        letter, written = GroupLogCodec().encode(record, BASE_S * 1_000)
        rows.append(decode(Kind.GROUP, RawEntry("{gc:0}:log", EntryId(1, seq), letter, written)))
    keep(data, Kind.GROUP, rows, 0)


@pytest.mark.rule("PM-31", "PM-42", "PM-61", "PM-111")
def test_a_standstill_in_which_nothing_is_written_is_found(tmp_path: Path) -> None:
    samples = [(at, 0, 100) for at in range(30, 1_800, 60)]
    found = page(tmp_path, [(0, snapshot(0, stats=UP_TO_100)), (60, update(10, stats=UP_TO_100))], 1_800, samples)
    (line,) = found.partitions
    assert (line.lag, line.lag_least, line.finished, line.still_s) == (90, False, 10, 1_680)
    assert [(point.lag, point.finished) for point in line.points] == [(100, 0), (90, 10), *[(90, 0)] * 28]
    assert [row["still_s"] for row in found.stalls] == list(range(1_680, 299, -60))
    (run,) = found.episodes
    assert (run["kind"], run["since"], run["until"]) == ("stalled", "1970-01-01 10:01:00", "1970-01-01 10:30:00")
    assert found.light == "red"


@pytest.mark.rule("PM-37", "PM-42", "PM-61", "PM-111")
def test_what_was_not_read_is_no_standstill_but_a_group_without_members_is(tmp_path: Path) -> None:
    leave(tmp_path, "G2")
    written: list[tuple[int, ShareRecord]] = [
        (0, snapshot(0, stats=UP_TO_100)),
        (0, snapshot(0, key=OTHER, stats=UP_TO_100)),
    ]
    samples = [(40, 0, 100), (40, 1, 100)]
    found = page(tmp_path, written, 600, samples, known=90)
    lines = {line.group_id: line for line in found.partitions}
    assert [(row["group_id"], row["kind"]) for row in found.stalls] == [("G2", "abandoned")] * 2
    assert (lines["G1"].still_s, lines["G1"].lag) == (None, 100)
    assert [point.lag for point in lines["G1"].points] == [100, 100, *[None] * 8]
    assert found.counts is not None
    assert (found.counts.stalls, found.counts.stalled, found.counts.standing, found.read_s) == (2, 0, 1, 90)


@pytest.mark.rule("PM-31", "PM-42", "PM-111")
def test_nothing_is_carried_into_another_life_and_who_is_deleted_has_no_lag(tmp_path: Path) -> None:
    written: list[tuple[int, ShareRecord]] = [
        (0, snapshot(0, stats=UP_TO_100)),
        (130, ShareTombstone(KEY)),
        (250, snapshot(40, state_epoch=2)),
        (0, snapshot(5, key=OTHER, stats=UP_TO_100)),
        (310, ShareTombstone(OTHER)),
    ]
    found = page(tmp_path, written, 360)
    lines = {line.group_id: line for line in found.partitions}
    assert [point.lag for point in lines["G1"].points] == [100, 100, None, None, None]
    assert (lines["G1"].lag_unknown, lines["G1"].spso, lines["G1"].resets) == (True, 40, 0)
    assert (lines["G2"].gone, lines["G2"].lag, lines["G2"].lag_unknown) == (True, None, False)


@pytest.mark.rule("PM-61", "PM-88", "PM-111")
def test_delayed_records_are_not_due(tmp_path: Path) -> None:
    late = StateBatch(10, 49, 0, 1, (BASE_S + 420) * 1_000)
    written: list[tuple[int, ShareRecord]] = [
        (0, snapshot(0, stats=WriteStats(hwm=50))),
        (60, update(10, batches=[late], stats=WriteStats(hwm=50))),
    ]
    samples = [(at, 0, 50) for at in range(30, 900, 60)]
    found = page(tmp_path, written, 900, samples)
    (line,) = found.partitions
    assert (line.lag, line.delayed) == (40, 0)
    assert [row["still_s"] for row in found.stalls] == [540, 480, 420, 360, 300]


@pytest.mark.rule("PM-37", "PM-61", "PM-111", "PM-113")
def test_what_a_page_has_no_room_for_counts_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for holding in (figures, assembled):
        monkeypatch.setattr(holding, "ROWS_MAX", 3)
    keys = [SharePartitionKey(f"g{number:02}", TOPIC, 0) for number in range(SHOWN_MAX + 5)]
    written: list[tuple[int, ShareRecord]] = [
        (0, snapshot(number, key=key, stats=UP_TO_100)) for number, key in enumerate(keys)
    ]
    found = page(tmp_path, written, 420, [(at, 0, 100) for at in range(30, 420, 60)])
    assert found.counts is not None
    assert (found.counts.standing, found.counts.stalls) == (len(keys), 2 * len(keys))
    assert [(row["group_id"], row["window"][11:]) for row in found.stalls] == [
        (key.group_id, "10:06:00") for key in keys[:3]
    ]
    assert [line.lag for line in found.partitions] == [100 - number for number in range(len(keys))]
    assert [bool(line.points) for line in found.partitions] == [True] * SHOWN_MAX + [False] * 5


@pytest.mark.rule("PM-37", "PM-111", "PM-113")
def test_equal_rows_give_equal_bytes_whatever_the_batches_and_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(11)
    known = Known(history.at(history.span_s - 100))
    one, many = (history.store(tmp_path / str(parts), parts=parts) for parts in (1, 7))
    pages = [render(collect_here(data, history.at(600), history.at(5_400), 60, known)) for data in (one, many)]
    monkeypatch.setattr(page_rows, "ROWS_AT_ONCE", 50)
    pages.append(render(collect_here(many, history.at(600), history.at(5_400), 60, known)))
    assert pages[0] == pages[1] == pages[2]
    assert "<svg" in pages[0]
