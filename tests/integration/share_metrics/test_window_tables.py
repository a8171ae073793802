"""The tables of windows: those of a process without Spark beside those of Spark, and beside Spark's own metrics."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.ingest.log_samples import samples
from share_metrics.ingest.tables import write_tables
from share_metrics.ingest.writing import stored
from share_metrics.metrics import (
    deletions_of,
    fill_windows,
    group_windows,
    known_ends,
    measure,
    progress_of,
    replay_windows_of,
    with_log_ends,
)
from share_metrics.reader import Kind
from share_metrics.report.periods import READ_BACK
from share_metrics.report.tables_by_process import write_tables_here
from share_metrics.report.window_tables import SIZES
from tests.support.kept_history import BASE_S, History

_NOW: Final = datetime(2026, 12, 1, tzinfo=UTC)
_NAMES: Final = ("progress", "lag", "replay", "groups")
#: The columns that say where a row is.
_PLACE: Final = ("size", "group_id", "topic_id", "partition", "window")

Rows = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours with four groups, gaps, deletions, resets, delays and logs that are only partly known."""
    return History(21).store(tmp_path_factory.mktemp("history"))


def files_of(data: Path) -> dict[str, Rows]:
    """The rows of each table, by their places."""
    return {name: placed(pq.read_table(data / "metrics" / name).to_pylist()) for name in _NAMES}


def placed(rows: list[dict[str, Any]]) -> Rows:
    """The rows by their places; each place has one."""
    found = {tuple(row.get(name) for name in _PLACE): {**row} for row in rows}
    assert len(found) == len(rows)
    return found


def by_metrics(spark: SparkSession, data: Path, size: str) -> Iterator[tuple[str, DataFrame]]:
    """The tables as the metrics of Spark compute them."""
    window_s = SIZES[size]
    first = datetime.fromtimestamp(BASE_S // 3_600 * 3_600, UTC)
    until = datetime.fromisoformat((data / "read-up-to").read_text())
    seen = samples(spark, data, None, until + timedelta(microseconds=1))
    ends = known_ends(seen, stored(spark, data, Kind.LOG_META), window_s, until, first - READ_BACK)
    found = measure(stored(spark, data, Kind.SHARE_STATE), window_s).localCheckpoint()
    windows = progress_of(found, window_s)
    end = datetime.fromtimestamp(-(-until.timestamp() // window_s) * window_s, UTC)
    filled = fill_windows(windows, window_s, first, end, deletions_of(found), ends)
    names = ("group_id", "topic_id", "partition", "window", "last_lag", "lag_least", "gone")
    yield "progress", with_log_ends(windows, ends, window_s)
    yield "lag", filled.where(F.col("window") < F.lit(until)).select(*names).withColumnRenamed("last_lag", "lag")
    yield "replay", replay_windows_of(found)
    yield "groups", group_windows(stored(spark, data, Kind.GROUP), window_s)


@pytest.mark.rule("PM-35", "PM-42", "PM-54", "PM-57", "PM-114")
def test_tables_of_this_process_have_the_rows_that_the_metrics_of_spark_have(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    shutil.copytree(data, tmp_path / "here")
    write_tables_here(tmp_path / "here", _NOW)
    found = files_of(tmp_path / "here")
    for size in SIZES:
        for name, frame in by_metrics(spark, data, size):
            folder = str(tmp_path / "expected" / size / name)
            frame.write.parquet(folder)
            expected = placed([row | {"size": size} for row in pq.read_table(folder).to_pylist()])
            of_size = {place: row for place, row in found[name].items() if place[0] == size}
            assert of_size.keys() == expected.keys()
            for place, row in of_size.items():
                assert {column: row[column] for column in expected[place]} == expected[place]
    assert {row["lag_least"] for row in found["lag"].values()} == {row["gone"] for row in found["lag"].values()}
    assert any(row["waits"] for row in found["replay"].values())
    assert any(row["incomplete"] for row in found["replay"].values())
    assert any(row["flapping"] for row in found["groups"].values())


@pytest.mark.rule("PM-35", "PM-114")
def test_tables_of_both_ways_have_the_same_rows_also_when_hours_are_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(22)
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        history.store(folder)
    assert write_tables(spark, there) == write_tables_here(here, _NOW)
    assert (here / "metrics" / "read.json").read_text() == (there / "metrics" / "read.json").read_text()
    assert files_of(here) == files_of(there)
    before = files_of(here)
    files = {path: path.stat().st_ino for path in here.glob("metrics/*/*/*/*/*.parquet")}
    (newest,) = here.glob("raw/share_state/commits/*2.json")
    for folder in (here, there):  # as if the newest batch of states had come since
        note = folder / "metrics" / "read.json"
        note.write_text(note.read_text().replace('"share_state": 2', '"share_state": 1'))
    assert newest.exists()
    assert write_tables(spark, there) == write_tables_here(here, _NOW) == ["1970-01-01T10", "1970-01-01T11"]
    assert files_of(here) == files_of(there)
    assert files_of(here).keys() == before.keys()
    kept = {path for path, number in files.items() if path.exists() and path.stat().st_ino == number}
    assert {path.parent.name for path in kept if "replay" in path.parts} == {"hour=09"}
    assert {path.name for path in (here / "metrics").iterdir()} == {*_NAMES, "read.json"}
