"""Which files hold rows, how long they are kept, and where they may be stored."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from share_metrics.archive.commits import visible
from share_metrics.archive.compaction import compact, trim
from share_metrics.archive.folders import checkpoints
from share_metrics.archive.kept_rows import state_rows
from share_metrics.archive.row_files import RowFiles
from share_metrics.ingest.writing import Watch, write_batch
from share_metrics.reader import Kind
from tests.support.pipeline_entries import KEY, snapshot, update

from .frames import BASE_S, states
from .test_history import STATE, TOPIC_TEXT, Batches, done, ids


@pytest.mark.rule("PM-35", "PM-32")
def test_old_rows_are_dropped_and_the_state_that_the_kept_time_begins_with_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two share-partitions; one was last written long before the retention period. Times count from ten o'clock."""
    idle, hour = KEY._replace(partition=1), 3_600
    batches = Batches(spark, tmp_path)
    batches.add((0, snapshot(0)), (1, snapshot(5, key=idle)), (2, update(7, key=idle)))
    batches.add((hour, update(10)), (hour + 1, snapshot(11)), (hour + 2, update(12)))
    batches.add((3 * hour, update(20)))
    batches.add((5 * hour, update(30)))
    done(tmp_path, *range(4))
    keep, now = timedelta(hours=2), datetime.fromtimestamp(BASE_S + 5 * hour + 60, UTC)
    made = trim(spark, tmp_path, STATE, keep, now)
    assert made is not None
    assert (made.first, made.last) == (0, 1)
    assert ids(spark, tmp_path) == ["1-2", "1-3", "1-5", "1-6", "1-7", "1-8"]
    assert trim(spark, tmp_path, STATE, keep, now) is None, "nothing more is that old"
    later = now + timedelta(hours=2)
    again = trim(spark, tmp_path, STATE, keep, later)
    assert again is not None
    assert (again.first, again.last) == (0, 2)
    assert ids(spark, tmp_path) == ["1-2", "1-3", "1-5", "1-6", "1-7", "1-8"]
    assert trim(spark, tmp_path, Kind.GROUP, keep, later) is None
    batches.add((8 * hour, snapshot(31)))
    done(tmp_path, 4)
    assert trim(spark, tmp_path, STATE, keep, now + timedelta(days=9)) is not None
    assert ids(spark, tmp_path) == ["1-2", "1-3", "1-9"]
    assert compact(spark, tmp_path, STATE, at_least=9, now=datetime.now(UTC) + timedelta(days=2)) is None
    assert len(list((tmp_path / "raw" / "share_state").glob("batch=*"))) == 1, "what was replaced is gone a day later"


@pytest.mark.rule("PM-35")
def test_what_spark_may_repeat_is_not_dropped_however_old(spark: SparkSession, tmp_path: Path) -> None:
    batches = Batches(spark, tmp_path)
    batches.add((0, snapshot(0)), (1, update(1)))
    assert trim(spark, tmp_path, STATE, timedelta(hours=1)) is None
    done(tmp_path, 0)
    assert trim(spark, tmp_path, STATE, timedelta(hours=1)) is not None
    assert trim(spark, tmp_path, STATE, timedelta(hours=1)) is None


@pytest.mark.rule("PM-35", "PM-36", "PM-39")
def test_rows_may_lie_wherever_hadoop_has_a_file_system(spark: SparkSession, tmp_path: Path) -> None:
    """Uses this machine's file system, by a URI. The leftovers of an attempt are removed there; foreign files stay."""
    data, rows = tmp_path / "data", tmp_path / "else where"
    batches = Batches(spark, data, f"file://{rows}")
    batches.add((0, snapshot(0)), (1, update(5)))
    batches.add((3_600, update(9)))
    assert [path.name for path in (data / "raw" / "share_state").iterdir()] == ["commits"]
    assert all(span.folder.startswith(f"file://{rows}/share_state/batch=") for span in visible(data, STATE))
    assert ids(spark, data) == ["1-1", "1-2", "1-3"]
    (rows / "share_state" / "batch=00000009.left").mkdir()
    (rows / "share_state" / "others").mkdir()
    RowFiles(spark, data, f"file://{rows}").sweep(STATE)
    assert ids(spark, data) == ["1-1", "1-2", "1-3"]
    columns = KEY.group_id, TOPIC_TEXT, KEY.partition
    assert [row["start_offset"] for row in state_rows(data, columns, None)] == [0, 5, 9]
    done(data, 0, 1)
    made = compact(spark, data, STATE, rows=f"file://{rows}")
    assert made is not None
    assert ids(spark, data) == ["1-1", "1-2", "1-3"]
    assert compact(spark, data, STATE, now=datetime.now(UTC) + timedelta(days=2)) is None
    left = sorted(path.name for path in (rows / "share_state").iterdir())
    assert left == [made.folder.rpartition("/")[2], "others"]


@pytest.mark.rule("PM-35")
def test_a_batch_is_written_in_as_many_tasks_as_it_has_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Each task writes a file for each hour of its rows."""
    reported = [(second, update(second)) for second in (0, 1, 2, 3_600, 3_601, 3_602, 7_200)]
    rows = states(spark, reported).repartitionByRange(3, "seq")
    write_batch(spark, tmp_path, STATE, rows, 0, Watch())
    (batch,) = visible(tmp_path, STATE)
    assert sorted(batch.hours) == ["1970-01-01T10", "1970-01-01T11", "1970-01-01T12"]
    tasks = {re.sub(r"^part-(\d+)-.*$", r"\1", Path(piece.path).name) for piece in batch.pieces}
    assert tasks == {"00000", "00001", "00002"}
    assert all(piece.path.endswith(".zstd.parquet") for piece in batch.pieces)
    assert all(Path(piece.path).stat().st_size == piece.size for piece in batch.pieces)
    assert ids(spark, tmp_path) == [f"1-{seq}" for seq in range(1, 8)]


@pytest.mark.rule("PM-35", "PM-36")
def test_a_file_that_no_commit_names_is_never_read(spark: SparkSession, tmp_path: Path) -> None:
    """Such a file is left by a task that finishes after its job was killed."""
    batches = Batches(spark, tmp_path)
    batches.add((0, update(0)))
    (piece,) = visible(tmp_path, STATE)[0].pieces
    shutil.copy(piece.path, Path(piece.path).with_name("part-00007-late.zstd.parquet"))
    assert ids(spark, tmp_path) == ["1-1"]
    assert compact(spark, tmp_path, STATE, at_least=1) is None, "Spark may still repeat it"
    done = checkpoints(tmp_path, STATE) / "commits"
    done.mkdir(parents=True)
    (done / "0").touch()
    assert compact(spark, tmp_path, STATE, at_least=1) is not None
    assert ids(spark, tmp_path) == ["1-1"]
