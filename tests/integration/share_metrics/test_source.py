"""The data source in Spark: batch reads, micro-batches, restarts (PM-66: only a few, with little data)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, In
from pyspark.sql.streaming.query import StreamingQuery

from group_coordinator.core import records as r
from kip932.ids import shard_index
from share_metrics.spark.options import read_options
from share_metrics.spark.source import BatchReader
from tests.support.pipeline_entries import snapshot, update

from .world import Log, World

S0, S1 = "{sgs:0}:log", "{sgs:1}:log"


def batch(spark: SparkSession, world: World, kind: str = "share_state", **options: str) -> DataFrame:
    return spark.read.format("redis_streams").options(url=world.url, kind=kind, **options).load()


def run(spark: SparkSession, world: World, folder: Path, **options: str) -> StreamingQuery:
    """Run one query over everything stored (availableNow), appended to Parquet below `folder`."""
    stream = spark.readStream.format("redis_streams").options(url=world.url, kind="share_state", **options).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return query


def ids(rows: DataFrame) -> list[tuple[str, str]]:
    return sorted((row.stream, row.entry_id) for row in rows.select("stream", "entry_id").collect())


@pytest.mark.rule("PM-1", "PM-5", "PM-10", "PM-16", "PM-75")
def test_a_batch_read_has_every_entry_once(spark: SparkSession, world: World) -> None:
    world.make_cluster(state_shards=3)
    Log(world, S0).state(snapshot(100), *(update(number) for number in range(101, 140)))
    Log(world, S1).state(snapshot(5))
    rows = batch(spark, world, splitEntries="7", numPartitions="3", pageCount="4").collect()
    assert len(rows) == 41 + 2
    assert sorted(row.start_offset for row in rows if row.stream == S0 and row.start_offset) == list(range(100, 140))
    assert {row.topic_id for row in rows if row.topic_id} == {"AAAAAAAAAAAAAAAAAAAAAQ"}


@pytest.mark.rule("PM-74")
def test_an_empty_cluster_is_an_empty_table(spark: SparkSession, world: World) -> None:
    world.make_cluster(state_shards=2)
    assert batch(spark, world).collect() == []


@pytest.mark.rule("PM-15")
def test_filters_leave_out_streams_and_never_rows(spark: SparkSession, world: World) -> None:
    world.make_cluster(state_shards=2, group_shards=4)
    Log(world, S0).state(snapshot(1))
    Log(world, S1).state(snapshot(2))
    assert batch(spark, world).where(f"stream = '{S1}'").count() == 2
    for group in ("g", "h"):
        log = Log(world, f"{{gc:{shard_index(group, 4)}}}:log")
        log.group(r.GroupMetadata(group, 1, 0, 1))
    rows = batch(spark, world, "group")
    assert [row.group_id for row in rows.where("group_id = 'g'").collect()] == ["g"]
    assert sorted(row.group_id for row in rows.where("group_id in ('g', 'h', 'i')").collect()) == ["g", "h"]


@pytest.mark.rule("PM-15")
def test_a_filter_that_names_nothing_names_no_stream(world: World) -> None:
    """`IN ('g', NULL)` is pushed down with None among its values, which is not a group's name."""
    world.make_cluster(state_shards=1, group_shards=4)
    for group in ("g", "h"):
        Log(world, f"{{gc:{shard_index(group, 4)}}}:log").group(r.GroupMetadata(group, 1, 0, 1))
    for column, value in (("group_id", "g"), ("stream", f"{{gc:{shard_index('g', 4)}}}:log")):
        source = BatchReader(read_options({"url": world.url, "kind": "group"}))
        assert source.pushFilters([In((column,), (value, None))])
        read = [row for task in source.partitions() for made in source.read(task) for row in made.to_pylist()]
        assert {row["group_id"] for row in read} == {None, "g"}
        assert source.pushFilters([EqualTo((column,), None)])
        assert source.partitions() == []


@pytest.mark.rule("PM-5", "PM-77")
def test_ending_ids_make_a_read_repeatable(spark: SparkSession, world: World) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(snapshot(1), update(2), update(3))
    rows = batch(spark, world, startingIds=json.dumps({S0: "1-1"}), endingIds=json.dumps({S0: "1-2"}))
    log.state(update(4))
    assert ids(rows) == [(S0, "1-2")]


@pytest.mark.rule("PM-8", "PM-9", "PM-68")
def test_micro_batches_keep_the_limit_and_a_restart_goes_on(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=2)
    log = Log(world, S0)
    log.state(snapshot(0), *(update(number) for number in range(1, 20)))
    first = run(spark, world, tmp_path, maxRowsPerTrigger="8")
    sizes = [progress["numInputRows"] for progress in first.recentProgress]
    assert max(sizes) <= 8
    assert sum(sizes) == 21
    log.claim().state(update(20))
    Log(world, S1).state(snapshot(5))
    run(spark, world, tmp_path, maxRowsPerTrigger="8")
    stored = spark.read.parquet(str(tmp_path / "rows"))
    expected = sorted((stream, key.decode()) for stream in (S0, S1) for key, _ in world.redis.xrange(stream))
    assert ids(stored) == expected
