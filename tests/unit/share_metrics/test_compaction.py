"""Which folders of batches are put together, and into how many files. Without Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from share_metrics import compaction
from share_metrics.folders import batch_name, checkpoints, raw, visible
from share_metrics.reader import Kind

STATE = Kind.SHARE_STATE
MIB = 1 << 20


def put(data: Path, *, first: int, last: int | None = None, mib: int) -> Path:
    """A folder of batches that Spark has confirmed, with a file of that size that takes no place."""
    folder = raw(data, STATE) / batch_name(first, last)
    (folder / "dt=2026-11-22" / "hour=08").mkdir(parents=True)
    name = folder / "dt=2026-11-22" / "hour=08" / "part-0.parquet"
    name.touch()
    os.truncate(name, mib * MIB)
    commits = checkpoints(data, STATE) / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (commits / str(first if last is None else last)).touch()
    return folder


class Rows:
    """Rows that know only of how many files they become."""

    files = 0

    def coalesce(self, files: int) -> Rows:
        self.files = files
        return self


class Made:
    """What was put together, and into how many files."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.read: list[str] = []
        self.files = 0
        patched.setattr(compaction, "read_folders", self._read)
        patched.setattr(compaction, "write_hidden", self._write)

    def _read(self, _spark: Any, _kind: Kind, folders: Sequence[Path]) -> Rows:
        self.read = [folder.name for folder in folders]
        return Rows()

    def _write(self, rows: Rows, target: Path, _positions: str) -> Path:
        self.files = rows.files
        hidden = target.with_name("hidden")
        hidden.mkdir()
        return hidden


def put_together(data: Path) -> Path | None:
    spark: Any = None
    return compaction.compact(spark, data, STATE)


@pytest.mark.rule("PM-35")
@pytest.mark.parametrize(("sizes", "files"), [([1, 1], 1), ([60, 60], 1), ([50, 50, 50], 2), ([63] * 5, 4)])
def test_files_of_at_least_64_mib_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], files: int
) -> None:
    made = Made(monkeypatch)
    for number, mib in enumerate(sizes):
        put(tmp_path, first=number, mib=mib)
    assert put_together(tmp_path) == raw(tmp_path, STATE) / batch_name(0, len(sizes) - 1)
    assert made.files == files
    assert files == 1 or sum(sizes) / files >= 64


@pytest.mark.rule("PM-35")
def test_what_is_large_already_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    large = put(tmp_path, first=0, last=8, mib=64)
    put(tmp_path, first=9, mib=1)
    assert put_together(tmp_path) is None
    put(tmp_path, first=10, mib=1)
    assert put_together(tmp_path) == raw(tmp_path, STATE) / batch_name(9, 10)
    assert made.read == [batch_name(9), batch_name(10)]
    assert visible(tmp_path, STATE)[0] == large
