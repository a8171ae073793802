"""Until when everything was read: moved on by what all queries have read, never back, and no job fails by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from share_metrics.read_up_to import Note, complete_up_to, read_up_to

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def progress(seconds: float, rows: int = 0) -> dict[str, Any]:
    """As Spark tells it, of a batch that was planned so long after noon."""
    at = NOON + timedelta(seconds=seconds)
    return {"timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z", "numInputRows": rows}


@pytest.mark.rule("PM-37")
def test_a_batch_that_is_full_may_have_left_something() -> None:
    assert complete_up_to(progress(1.25, 99), 100) == NOON + timedelta(seconds=1.25)
    assert complete_up_to(progress(1, 100), 100) is None
    assert complete_up_to(None, 100) is None


@pytest.mark.rule("PM-37")
def test_all_queries_have_read_what_the_slowest_has_and_no_job_takes_it_back(tmp_path: Path) -> None:
    note = Note(tmp_path, 100, lambda _: None)
    seen = []
    for queries in (
        [],
        [None, progress(1)],
        [progress(60), progress(50)],
        [progress(60), progress(110, 100)],
        [progress(120), progress(110)],
        [progress(20), progress(20)],
    ):
        note.look(queries)
        at = read_up_to(tmp_path)
        seen.append(at and (at - NOON).total_seconds())
    assert seen == [None, None, 50, 50, 110, 110]
    Note(tmp_path, 100, lambda _: None).move(NOON)
    assert read_up_to(tmp_path) == NOON + timedelta(seconds=110)


@pytest.mark.rule("PM-36", "PM-37")
def test_where_it_cannot_be_noted_the_job_goes_on_and_says_so_once(tmp_path: Path) -> None:
    told: list[str] = []
    note = Note(tmp_path / "gone", 100, told.append)
    for seconds in (1, 2, 3):
        note.look([progress(seconds)])
    assert len(told) == 1
    assert "No such file or directory" in told[0]
    (tmp_path / "gone").mkdir()
    note.look([progress(4)])
    assert read_up_to(tmp_path / "gone") == NOON + timedelta(seconds=4)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-22T12:00:00", "\x00"])
def test_what_is_no_time_is_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "read-up-to").write_text(text)
    assert read_up_to(tmp_path) is None
