"""Which batches the stored windows regard as new, and how their files are replaced. Without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from share_metrics.archive.commits import raw
from share_metrics.archive.folders import FolderError, checkpoints
from share_metrics.archive.table_files import keep_only, news_of, rename_folders, replacing, write_rows
from share_metrics.reader import Kind
from tests.support.kept_files import batch_name

STATE = Kind.SHARE_STATE
_NOW = datetime(2026, 12, 1, tzinfo=UTC)
_BASE_S = 1_764_576_000  # an hour begins


class Kept:
    """A directory with tables and batches; batch number n has a row in hour n."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def ingest(self, query: str, batches: int) -> None:
        """Store `batches` batches of this query, and none of any other."""
        for number in range(batches):
            hour = raw(self.data, STATE) / batch_name(number) / "dt=2026-11-22" / f"hour={number:02d}"
            hour.mkdir(parents=True)
            (hour / "part-0.parquet").touch()
        checkpoints(self.data, STATE).mkdir(parents=True, exist_ok=True)
        (checkpoints(self.data, STATE) / "metadata").write_text(json.dumps({"id": query}))

    def remove(self) -> None:
        """Remove what an operator must remove before ingesting from scratch."""
        raw(self.data, STATE).rename(self.data / "gone")

    def hours(self) -> list[str]:
        """The hours whose tables are rewritten."""
        news = news_of(self.data, _NOW)
        news.write(self.data)
        firsts = {at.strftime("%H") for at in news.first.values()}
        assert firsts == ({news.hours[0][-2:]} if news.hours else set())
        return [hour[-2:] for hour in news.hours]


@pytest.mark.rule("PM-35", "PM-36")
@pytest.mark.parametrize("batches", [1, 2, 5], ids=["fewer", "as many", "more"])
def test_after_a_new_begin_all_hours_have_news(tmp_path: Path, batches: int) -> None:
    kept = Kept(tmp_path)
    kept.ingest("one", 2)
    assert kept.hours() == ["00", "01"]
    assert kept.hours() == []
    kept.remove()
    kept.ingest("two", batches)
    assert kept.hours() == [f"{number:02d}" for number in range(batches)]
    assert kept.hours() == []


@pytest.mark.rule("PM-35")
def test_a_note_of_an_earlier_build_is_taken_unless_it_reports_batches_that_are_not_there(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.ingest("one", 2)
    note = tmp_path / "metrics" / "read.json"
    note.parent.mkdir()
    note.write_text(json.dumps({"share_state": 0}))
    assert kept.hours() == ["01"]
    note.write_text(json.dumps({"share_state": 3}))
    assert kept.hours() == ["00", "01"]


@pytest.mark.rule("PM-97")
def test_folders_of_an_earlier_build_become_part_of_a_data_set(tmp_path: Path) -> None:
    """In a folder `window=1m` the files' own column `window` was a second one, so the table could not be read."""
    for name, lag in (("window=1m", 5), ("size=1h", 7)):
        folder = tmp_path / "lag" / name / "dt=2026-12-01" / "hour=08"
        folder.mkdir(parents=True)
        window = pa.array([1_764_576_000_000_000], pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"window": window, "lag": [lag]}), folder / "part-0.parquet")
    with pytest.raises(pa.ArrowTypeError):
        pq.read_table(tmp_path / "lag")
    rename_folders(tmp_path)
    rows = pq.read_table(tmp_path / "lag").to_pylist()
    assert sorted((row["size"], row["lag"], str(row["dt"]), row["hour"]) for row in rows) == [
        ("1h", 7, "2026-12-01", 8),
        ("1m", 5, "2026-12-01", 8),
    ]
    assert all(row["window"].year == 2025 for row in rows)
    rename_folders(tmp_path)
    assert pq.read_table(tmp_path / "lag").num_rows == len(rows)


def rows(*at: int, lag: int) -> Any:
    """Rows of the table `lag` in windows that begin so many seconds after _BASE_S."""
    window = pa.array([(_BASE_S + one) * 1_000_000 for one in at], pa.timestamp("us", tz="UTC"))
    return pa.table({"window": window, "lag": [lag] * len(at)})


def lags(data: Path) -> list[int]:
    """The values of the table `lag`, in order."""
    found: list[int] = sorted(pq.read_table(data / "metrics" / "lag")["lag"].to_pylist())
    return found


@pytest.mark.rule("PM-35", "PM-114")
def test_only_hours_with_rows_are_replaced_and_all_at_once(tmp_path: Path) -> None:
    with replacing(tmp_path) as new:
        names = write_rows(new, [("lag", "1m", rows(0, 60, 3_600, lag=1))])
        assert not (tmp_path / "metrics" / "lag").exists(), "nothing is replaced yet"
    assert len(names) == 2, "a file for each hour"
    with replacing(tmp_path) as new:
        again = write_rows(new, [("lag", "1m", rows(3_600, lag=2)), ("lag", "1m", rows(7_200, lag=2))])
        lost = write_rows(new, [("lag", "1m", rows(0, lag=99))])  # of a task that was run again
        assert lost
        keep_only(new, again)
    assert lags(tmp_path) == [1, 1, 2, 2]

    def fail() -> None:
        with replacing(tmp_path) as new:
            write_rows(new, [("lag", "1m", rows(0, lag=99))])
            raise ValueError("rows cannot be read")

    with pytest.raises(ValueError, match="rows cannot be read"):
        fail()
    assert lags(tmp_path) == [1, 1, 2, 2]
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["lag"]


@pytest.mark.rule("PM-39")
def test_tables_that_cannot_be_written_end_with_words_that_help(tmp_path: Path) -> None:
    (tmp_path / "metrics").touch()
    with pytest.raises(FolderError, match=r"tables cannot be written to .*metrics: .*; make room"), replacing(tmp_path):
        pass
