"""Which folders of batches are merged, and into how many files. Without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from share_metrics.archive import compaction
from share_metrics.archive.commits import Span, Written, commit, visible
from share_metrics.archive.folders import checkpoints
from share_metrics.reader import Kind

STATE = Kind.SHARE_STATE
MIB = 1 << 20


def put(data: Path, *, first: int, last: int | None = None, mib: int, hour: str = "08") -> Span:
    """Commit batches that Spark has confirmed, with this size in their commit."""
    numbers = first, first if last is None else last
    commits = checkpoints(data, STATE) / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (commits / str(numbers[1])).touch()
    files = [(f"dt=2026-11-22/hour={hour}/part-0.parquet", mib * MIB)]
    return commit(data, STATE, numbers, Written(f"batch={first}.x", files), f"to {numbers[1]}")


class Rows:
    """Rows that only record how many files they are written to."""

    files = 0

    def coalesce(self, files: int) -> Rows:
        self.files = files
        return self


class Made:
    """Records which batches are merged, and into how many files; nothing is removed."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.read: list[int] = []
        self.files = 0
        made = self

        class Files:
            def __init__(self, *_: object) -> None: ...

            def write(self, _kind: Kind, name: str, rows: Rows) -> Written:
                made.files = rows.files
                return Written(f"batch={name}.y", [("dt=2026-11-22/hour=08/part-0.parquet", 1)])

        patched.setattr(compaction, "rows_in", self._read)
        patched.setattr(compaction, "RowFiles", Files)

    def _read(self, _spark: Any, _kind: Kind, there: Sequence[Span]) -> Rows:
        self.read = [span.last for span in there]
        return Rows()


def put_together(data: Path) -> tuple[int, int, str] | None:
    spark: Any = None
    made = compaction.compact(spark, data, STATE)
    return None if made is None else (made.first, made.last, made.positions)


@pytest.mark.rule("PM-35")
@pytest.mark.parametrize(("sizes", "files"), [([1, 1], 1), ([60, 60], 1), ([50, 50, 50], 2), ([63] * 5, 4)])
def test_files_of_at_least_64_mib_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], files: int
) -> None:
    made = Made(monkeypatch)
    for number, mib in enumerate(sizes):
        put(tmp_path, first=number, mib=mib)
    last = len(sizes) - 1
    assert put_together(tmp_path) == (0, last, f"to {last}")
    assert made.files == files
    assert files == 1 or sum(sizes) / files >= 64


@pytest.mark.rule("PM-35")
def test_what_is_large_already_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    large = put(tmp_path, first=0, last=8, mib=64)
    put(tmp_path, first=9, mib=1)
    assert put_together(tmp_path) is None
    put(tmp_path, first=10, mib=1)
    assert put_together(tmp_path) == (9, 10, "to 10")
    assert made.read == [9, 10]
    assert visible(tmp_path, STATE)[0] == large
