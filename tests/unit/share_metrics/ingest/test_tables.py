"""Which batches the stored windows regard as new. Without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from share_metrics.archive.commits import raw
from share_metrics.archive.folders import checkpoints
from share_metrics.ingest import tables
from share_metrics.reader import Kind
from tests.support.kept_files import batch_name

STATE = Kind.SHARE_STATE


class Kept:
    """A directory with tables and batches; batch number n has a row in hour n."""

    def __init__(self, data: Path, patched: pytest.MonkeyPatch) -> None:
        self.data = data
        patched.setattr(tables, "stored", lambda *_: None)
        patched.setattr(tables, "_write", lambda *_: None)
        patched.setattr(tables, "_write_lag", lambda *_: {})

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
        spark: Any = None
        return [hour[-2:] for hour in tables.write_tables(spark, self.data)]


@pytest.mark.rule("PM-35", "PM-36")
@pytest.mark.parametrize("batches", [1, 2, 5], ids=["fewer", "as many", "more"])
def test_after_a_new_begin_all_hours_have_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    kept = Kept(tmp_path, monkeypatch)
    kept.ingest("one", 2)
    assert kept.hours() == ["00", "01"]
    assert kept.hours() == []
    kept.remove()
    kept.ingest("two", batches)
    assert kept.hours() == [f"{number:02d}" for number in range(batches)]
    assert kept.hours() == []


@pytest.mark.rule("PM-35")
def test_a_note_of_an_earlier_build_is_taken_unless_it_reports_batches_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, monkeypatch)
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
    tables.rename_folders(tmp_path)
    rows = pq.read_table(tmp_path / "lag").to_pylist()
    assert sorted((row["size"], row["lag"], str(row["dt"]), row["hour"]) for row in rows) == [
        ("1h", 7, "2026-12-01", 8),
        ("1m", 5, "2026-12-01", 8),
    ]
    assert all(row["window"].year == 2025 for row in rows)
    tables.rename_folders(tmp_path)
    assert pq.read_table(tmp_path / "lag").num_rows == len(rows)
