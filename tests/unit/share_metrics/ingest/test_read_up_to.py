"""The time up to which everything was read: it advances with all queries, never goes back, and fails no job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from share_metrics.ingest.read_up_to import Note, complete_up_to, read_up_to

NOON = datetime(2025, 11, 22, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def progress(seconds: float, *streams: tuple[int | None, int], latest: Any = ...) -> dict[str, Any]:
    """Progress as Spark reports it for a batch that was planned `seconds` after noon; each stream is given as (start
    count, end count).

    `latest` is the streams' position at that time: by default the batch's end, and None if unknown.
    """
    at = NOON + timedelta(seconds=seconds)
    begins = {f"s{number}": {"id": "1-1", "n": begin} for number, (begin, _) in enumerate(streams) if begin is not None}
    ends = {f"s{number}": {"id": "1-9", "n": end} for number, (_, end) in enumerate(streams)}
    newest = ends if latest is ... else latest and dict.fromkeys(ends, latest)
    progress_read = {"startOffset": begins or None, "endOffset": ends, "latestOffset": newest}
    source = {name: json.dumps(offsets) for name, offsets in progress_read.items()}
    return {"timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z", "sources": [source]}


@pytest.mark.rule("PM-37")
@pytest.mark.parametrize(
    ("progress_read", "complete"),
    [
        (progress(1.25, (10, 60), (200, 249)), True),
        (progress(1.25, (10, 60), (200, 250)), False),
        (progress(1.25, (10, 10)), True),
        (progress(1.25, (None, 99)), True),
        (progress(1.25, (10, 20), (None, 90)), False),
        (progress(1.25, (90, 20), (10, 40)), False),
        (progress(1.25, (100, 110), latest={"id": "2-60", "n": 110}), False),
        (progress(1.25, (100, 110), latest={"id": "1-12", "n": 113}), True),
        (progress(1.25, (10, 20), latest=None), False),
        (progress(1.25), True),
        (None, False),
    ],
    ids=[
        "some",
        "full",
        "none",
        "begun",
        "full, one begun",
        "tail lost",
        "overtaken",
        "more since",
        "old plan",
        "no streams",
        "no progress",
    ],
)
def test_a_batch_that_may_have_left_something_says_nothing(
    progress_read: dict[str, Any] | None, complete: bool
) -> None:
    assert complete_up_to(progress_read, 100) == (NOON + timedelta(seconds=1.25) if complete else None)


@pytest.mark.rule("PM-37")
def test_all_queries_have_read_what_the_slowest_has(tmp_path: Path) -> None:
    note = Note(tmp_path, 100, lambda _: None)
    idle, full = (7, 7), (7, 107)
    seen = []
    for queries in (
        [],
        [None, progress(1, idle)],
        [progress(60, idle), progress(50, idle)],
        [progress(60, idle), progress(110, full)],
        [progress(120, idle), progress(110, idle)],
    ):
        note.advance(queries)
        at = read_up_to(tmp_path, LATER)
        seen.append(at and (at - NOON).total_seconds())
    assert seen == [None, None, 50, 50, 110]
    note.move(None)
    assert read_up_to(tmp_path, LATER) is None


@pytest.mark.rule("PM-37", "PM-110")
def test_the_time_is_corrected_where_this_machines_clock_is_wrong(tmp_path: Path) -> None:
    note = Note(tmp_path, 100, lambda _: None, corrected=lambda at: at - timedelta(hours=1))
    note.advance([progress(3_601, (7, 7))])
    assert read_up_to(tmp_path, LATER) == note.at == NOON + timedelta(seconds=1)


@pytest.mark.rule("PM-37", "PM-107")
def test_the_first_trigger_of_a_query_is_full_with_fewer_rows(tmp_path: Path) -> None:
    note = Note(tmp_path, 100, lambda _: None, first_rows=20)

    def advanced(seconds: float, run: str, batch: int, rows: int) -> tuple[float | None, bool]:
        note.advance([progress(seconds, (0, rows)) | {"runId": run, "batchId": batch}])
        at = read_up_to(tmp_path, LATER)
        return None if at is None else (at - NOON).total_seconds(), note.full

    assert advanced(1, "a", 7, 20) == (None, True)
    assert advanced(1, "a", 7, 20) == (None, True), "the same one, seen again"
    assert advanced(2, "a", 8, 20) == (None, True), "the one before it may have repeated a batch of an earlier run"
    assert advanced(3, "a", 9, 20) == (3, False)
    assert advanced(4, "a", 10, 100) == (3, True)
    assert advanced(5, "b", 10, 19) == (5, False)
    assert advanced(6, "b", 11, 20) == (5, True)
    for number in range(40):
        assert advanced(7, f"c{number}", 1, 20) == (5, True)
    assert len(note._firsts) <= 16


@pytest.mark.rule("PM-37")
def test_a_time_that_has_not_come_was_noted_by_a_clock_that_was_wrong(tmp_path: Path) -> None:
    note = Note(tmp_path, 100, lambda _: None)
    note.move(LATER + timedelta(days=365))
    assert read_up_to(tmp_path, LATER) is None
    note.move(LATER)
    assert read_up_to(tmp_path, LATER) == LATER


@pytest.mark.rule("PM-36", "PM-37")
def test_where_it_cannot_be_noted_the_job_goes_on_and_says_so_once(tmp_path: Path) -> None:
    progress_read: list[str] = []
    note = Note(tmp_path / "gone", 100, progress_read.append)
    for seconds in (1, 2, 3):
        note.advance([progress(seconds, (7, 7))])
    assert len(progress_read) == 1
    assert "No such file or directory" in progress_read[0]
    (tmp_path / "gone").mkdir()
    note.advance([progress(4, (7, 7))])
    assert read_up_to(tmp_path / "gone", LATER) == NOON + timedelta(seconds=4)


@pytest.mark.parametrize("text", ["", "yesterday", "2025-11-22T12:00:00", "\x00"])
def test_what_is_no_time_is_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "read-up-to").write_text(text)
    assert read_up_to(tmp_path, LATER) is None
