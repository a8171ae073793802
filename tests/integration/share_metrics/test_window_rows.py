"""Checks which files a report reads, according to Spark's plan, and that they contain everything it needs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_coordinator.core.records import ShareRecord, ShareTombstone
from share_metrics.archive.window_rows import states_of
from share_metrics.ingest.writing import Watch, stored, write_batch
from share_metrics.metrics.common import since, until
from share_metrics.reader import EntryId, Gap, Kind
from tests.support.pipeline_entries import KEY, STREAM, snapshot, update

from .frames import BASE_S, states

HOUR_S: Final = 3_600
KEYS: Final = [KEY._replace(partition=number) for number in range(4)]


def at(hours: float) -> datetime:
    return datetime.fromtimestamp(BASE_S + hours * HOUR_S, UTC)


def keep(spark: SparkSession, data: Path, reported: list[tuple[int, ShareRecord] | Gap], batches: int) -> None:
    """Write rows of one stream as `batches` batches."""
    rows = states(spark, reported).withColumn("place", F.col("seq") * batches / (len(reported) + 1)).localCheckpoint()
    for number in range(batches):
        write_batch(
            spark, data, Kind.SHARE_STATE, rows.where(F.floor("place") == number).drop("place"), number, Watch()
        )


def partition_filters(rows: DataFrame) -> list[str]:
    """Return the filters by which each scan in Spark's plan for the rows skips folders; only Spark's internal objects
    show them."""
    leaves = rows._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.size())]
    return [scan.partitionFilters().toString() for scan in scans if scan.nodeName().startswith("Scan parquet")]


@pytest.mark.rule("PM-32")
def test_the_plan_leaves_out_hours_that_nothing_is_needed_of(spark: SparkSession, tmp_path: Path) -> None:
    """Ten hours from ten o'clock; one share-partition's last snapshot is from the second hour."""
    reported: list[tuple[int, ShareRecord] | Gap] = [(number * HOUR_S, snapshot(number)) for number in range(10)]
    reported.insert(2, (HOUR_S + 1, snapshot(7, key=KEYS[1])))
    keep(spark, tmp_path, reported, 2)
    found = states_of(spark, tmp_path, at(6), at(7.5))
    (filters,) = (words for words in partition_filters(found) if "1970-01-01T16" in words)
    assert "1970-01-01T17" in filters
    assert "1970-01-01T11" in filters
    assert [row["seq"] for row in found.orderBy("seq").collect()] == [2, 3, 7, 8, 9]


@pytest.mark.rule("PM-7", "PM-32")
def test_what_is_left_out_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A random history of a day: idle share-partitions, gaps, owners whose clocks are hours fast or slow."""
    random, second = Random(32), 0
    reported: list[tuple[int, ShareRecord] | Gap] = []
    for seq in range(1, 150):
        second += random.randrange(1_200)
        key = random.choice(KEYS if seq % 50 > 30 else KEYS[:2])
        updates: list[ShareRecord] = [update(seq, key=key)] * 6
        record = random.choice([snapshot(seq, key=key), *updates, update(-1, key=key), ShareTombstone(key)])
        skew = random.choice([0, 0, 0, 0, 0, 0, -3 * HOUR_S, 3 * HOUR_S]) if 60 < seq < 100 else 0
        reported.append((max(second + skew, 0), record))
        if seq % 40 == 0:
            reported.append(Gap(STREAM, EntryId(1, len(reported)), EntryId(1, len(reported) + 1), 3, "missing"))
    keep(spark, tmp_path, reported, 3)
    whole = stored(spark, tmp_path, Kind.SHARE_STATE).localCheckpoint()
    for begin, end in ((2.0, 4.5), (9.5, 11.0), (14.0, 30.0)):
        expected, found = (
            since(until(rows, F.lit(at(end))), F.lit(at(begin))).select("entry_id", "record_type").collect()
            for rows in (whole, states_of(spark, tmp_path, at(begin), at(end)))
        )
        assert sorted(found) == sorted(expected) != []
