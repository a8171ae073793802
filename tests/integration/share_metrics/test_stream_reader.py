"""Micro-batches as Spark requests them, without Spark: where they end, and what stops them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from share_metrics.reader.streams import OtherClusterError
from share_metrics.spark.options import read_options
from share_metrics.spark.source import StreamReader
from tests.support.pipeline_entries import snapshot, update

from .world import Log, World

S0, S1, S2 = (f"{{sgs:{number}}}:log" for number in range(3))


def reader(world: World, **options: str) -> StreamReader:
    return StreamReader(read_options({"url": world.url, "kind": "share_state", **options}))


def trigger(source: StreamReader, start: dict[str, Any], limit: ReadLimit) -> tuple[dict[str, Any], list[str]]:
    """Run one micro-batch; returns its end and the ids read. Offsets and tasks are serialised as by Spark."""
    end = json.loads(json.dumps(source.latestOffset(start, limit)))
    tasks = pickle.loads(pickle.dumps(source.partitions(start, end)))
    return end, [row["entry_id"] for task in tasks for made in source.read(task) for row in made.to_pylist()]


@pytest.mark.rule("PM-9", "PM-68")
def test_available_now_ends_although_a_writer_goes_on(world: World) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(snapshot(0), *(update(number) for number in range(1, 10)))
    source = reader(world)
    at = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    seen: list[str] = []
    for _ in range(20):
        log.state(update(11), update(12))
        end, found = trigger(source, at, ReadMaxRows(4))
        if end == at:
            break
        seen += found
        at = end
    assert seen == [f"1-{seq}" for seq in range(11)]


@pytest.mark.rule("PM-9")
def test_all_available_means_all(world: World) -> None:
    world.make_cluster(state_shards=2)
    for stream in (S0, S1):
        Log(world, stream).state(*(update(number) for number in range(30)))
    source = reader(world, maxRowsPerTrigger="5")
    assert source.getDefaultReadLimit() == ReadMaxRows(5)
    _, found = trigger(source, source.initialOffset(), ReadAllAvailable())
    assert len(found) == 62


@pytest.mark.rule("PM-107")
def test_the_first_trigger_of_each_start_is_small(world: World) -> None:
    world.make_cluster(state_shards=2)
    for stream in (S0, S1):
        Log(world, stream).state(*(update(number) for number in range(30)))
    at, found = None, []
    for _ in range(2):
        source = reader(world, maxRowsPerTrigger="20", maxRowsFirstTrigger="4")
        for _ in range(2):
            at, read = trigger(source, at or source.initialOffset(), source.getDefaultReadLimit())
            found.append(len(read))
    assert found == [4, 20, 4, 20]
    source = reader(world, maxRowsFirstTrigger="4")
    assert len(trigger(source, source.initialOffset(), ReadAllAvailable())[1]) == 62


@pytest.mark.rule("PM-108")
def test_a_store_that_was_replaced_or_emptied_is_not_read_on(world: World) -> None:
    world.make_cluster(state_shards=1)
    world.redis.set("{meta}:cluster", "one")
    Log(world, S0).state(update(1), update(2))
    source = reader(world, clusterId="one")
    at, found = trigger(source, source.initialOffset(), ReadMaxRows(100))
    assert len(found) == 3
    world.clear()
    with pytest.raises(OtherClusterError, match="holds no cluster, but positions and rows so far are of cluster one"):
        source.latestOffset(at, ReadMaxRows(100))
    world.make_cluster(state_shards=1)
    world.redis.set("{meta}:cluster", "two")
    Log(world, S0).state(*(update(number) for number in range(9)))
    for ask in (lambda: source.latestOffset(at, ReadMaxRows(100)), lambda: source.partitions(at, at)):
        with pytest.raises(OtherClusterError, match=r"this store is of cluster two, but .* are of cluster one; give"):
            ask()


@pytest.mark.rule("PM-8", "PM-68")
def test_a_shard_that_comes_later_starts_at_its_earliest(world: World) -> None:
    world.make_cluster(state_shards=2)
    Log(world, S0).state(update(1))
    at, _ = trigger(reader(world), reader(world).initialOffset(), ReadMaxRows(100))
    world.make_cluster(state_shards=3)
    Log(world, S2).state(update(1), update(2))
    at, found = trigger(reader(world), at, ReadMaxRows(100))
    assert found == ["1-0", "1-1", "1-2"]
    assert trigger(reader(world), at, ReadMaxRows(100)) == (at, [])


@pytest.mark.rule("PM-8", "PM-11")
def test_what_a_new_shard_loses_between_plan_and_tasks_is_a_gap(world: World) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(update(1))
    source = reader(world)
    at, _ = trigger(source, source.initialOffset(), ReadMaxRows(100))
    world.make_cluster(state_shards=2)
    Log(world, S1).state(*(update(number) for number in range(9)))
    world.redis.xtrim(S1, minid="1-2", approximate=False)
    end = source.latestOffset(at, ReadMaxRows(100))
    world.redis.xtrim(S1, minid="1-5", approximate=False)
    found = [row for task in source.partitions(at, end) for made in source.read(task) for row in made.to_pylist()]
    assert [json.loads(row["error"])["lost"] for row in found if row["record_type"] == "gap"] == [3]
    assert [row["entry_id"] for row in found if row["record_type"] != "gap"] == [f"1-{seq}" for seq in range(5, 10)]


@pytest.mark.rule("PM-5", "PM-8", "PM-11")
def test_a_query_may_start_late_without_calling_that_a_loss(world: World) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(*(update(number) for number in range(9)))
    world.redis.xtrim(S0, minid="1-3", approximate=False)
    assert reader(world).initialOffset() == {S0: {"id": "0-0", "n": 3}}
    assert reader(world, startingIds="latest").initialOffset() == {S0: {"id": "1-9", "n": 10}}
    named = reader(world, startingIds=json.dumps({S0: "1-5"}))
    assert named.initialOffset() == {S0: {"id": "1-5", "n": 6}}
    _, found = trigger(named, named.initialOffset(), ReadMaxRows(100))
    assert found == ["1-6", "1-7", "1-8", "1-9"]


@pytest.mark.rule("PM-11")
def test_a_tail_that_the_store_lost_is_reported_and_the_query_goes_on(world: World) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(*(update(number) for number in range(9)))
    at, _ = trigger(reader(world), reader(world).initialOffset(), ReadMaxRows(100))
    kept = world.redis.xrange(S0, "-", "1-4")
    world.redis.delete(S0)
    for entry_id, fields in kept:
        world.redis.xadd(S0, fields, id=entry_id)
    Log(world, S0, epoch=2).state(update(1))
    source = reader(world)
    end = source.latestOffset(at, ReadMaxRows(100))
    assert end == {S0: {"id": "2-1", "n": 7}}
    found = [row for task in source.partitions(at, end) for made in source.read(task) for row in made.to_pylist()]
    assert [row["entry_id"] for row in found if row["record_type"] != "gap"] == ["2-0", "2-1"]
    assert [json.loads(row["error"])["lost"] for row in found if row["record_type"] == "gap"] == [5]
    assert trigger(source, end, ReadMaxRows(100)) == (end, [])


@pytest.mark.rule("PM-9")
def test_progress_reports_where_the_streams_stand(world: World) -> None:
    world.make_cluster(state_shards=2)
    Log(world, S0).state(update(1))
    assert reader(world).reportLatestOffset() == {S0: {"id": "1-1", "n": 2}}


@pytest.mark.rule("PM-11", "PM-68")
def test_what_was_trimmed_below_the_checkpoint_is_one_gap(world: World) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(update(0))
    at, _ = trigger(reader(world), reader(world).initialOffset(), ReadMaxRows(100))
    log.state(*(update(number) for number in range(1, 9)))
    world.redis.xtrim(S0, minid="1-6", approximate=False)
    source = reader(world)
    end = source.latestOffset(at, ReadMaxRows(100))
    found = [row for task in source.partitions(at, end) for made in source.read(task) for row in made.to_pylist()]
    assert [json.loads(row["error"])["lost"] for row in found if row["record_type"] == "gap"] == [4]
    assert [row["entry_id"] for row in found if row["record_type"] != "gap"] == ["1-6", "1-7", "1-8", "1-9"]


@pytest.mark.rule("PM-5", "PM-84")
@pytest.mark.parametrize(("rows", "expected"), [(8, 1), (9, 2), (20, 3)])
def test_few_rows_are_not_spread_over_many_tasks(world: World, rows: int, expected: int) -> None:
    world.make_cluster(state_shards=4)
    for number in range(4):
        Log(world, f"{{sgs:{number}}}:log").state(*(update(start) for start in range(9)))
    source = reader(world, numPartitions="3", pageCount="8")
    at = source.initialOffset()
    tasks = source.partitions(at, source.latestOffset(at, ReadMaxRows(rows)))
    assert len(tasks) == expected
    assert sum(made.num_rows for task in tasks for made in source.read(task)) == rows
