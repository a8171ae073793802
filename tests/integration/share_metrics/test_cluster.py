"""A store of three nodes in cluster mode: read as a batch, as a stream, and while slots move (PM-14, PM-68)."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from share_metrics.ingest.writing import Source, start, stored
from share_metrics.reader import EntryId, Kind, Position, Reader, ReadOptions, Store
from share_metrics.reader.planning import Goal
from share_metrics.reader.store import slot_of
from tests.support.cluster_nodes import ClusterNodes
from tests.support.pipeline_entries import snapshot, update
from tests.support.stores import Server

from .world import Log, World

STREAMS = [f"{{sgs:{number}}}:log" for number in range(6)]
BOUND_S = 120


class ClusterWorld(World):
    """A client that writes to the cluster."""

    def __init__(self, nodes: ClusterNodes) -> None:
        self.nodes = nodes
        ports = [pair.master.port for pair in nodes.pairs]
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)
        self.redis: Any = redis.RedisCluster(host="127.0.0.1", port=ports[0])

    def move(self, stream: str, *, half: bool = False) -> None:
        """Move a stream to the next node; with `half`, only its keys, so that the old node replies ASK."""
        pairs = self.nodes.pairs
        target = pairs[(pairs.index(self.nodes.pair_of(stream)) + 1) % len(pairs)]
        asyncio.run((self.nodes.begin_move if half else self.nodes.move_slot)(slot_of(stream), target))

    def end_move(self, stream: str) -> None:
        """Move the slot after the keys that `move` took to the next node."""
        pairs = self.nodes.pairs
        target = pairs[(pairs.index(self.nodes.pair_of(stream)) + 1) % len(pairs)]
        asyncio.run(self.nodes.end_move(slot_of(stream), target))


@pytest.fixture(scope="module")
def nodes() -> Iterator[ClusterNodes]:
    made = ClusterNodes()
    yield made
    made.stop()


@pytest.fixture
def cluster(nodes: ClusterNodes) -> Iterator[ClusterWorld]:
    """An empty cluster; slots are where they belong."""
    asyncio.run(nodes.ready())
    world = ClusterWorld(nodes)
    world.make_cluster(state_shards=len(STREAMS))
    yield world
    world.redis.close()


def written(cluster: ClusterWorld) -> list[tuple[str, str]]:
    return sorted((stream, key.decode()) for stream in STREAMS for key, _ in cluster.redis.xrange(stream))


@pytest.mark.rule("PM-14", "PM-68")
def test_a_batch_read_spans_the_nodes(spark: SparkSession, cluster: ClusterWorld) -> None:
    for number, stream in enumerate(STREAMS):
        Log(cluster, stream).state(snapshot(0), *(update(at) for at in range(3 * number)))
    assert len({id(cluster.nodes.pair_of(stream)) for stream in STREAMS}) == 3
    rows = spark.read.format("redis_streams").options(url=cluster.url, kind="share_state").load()
    assert sorted((row.stream, row.entry_id) for row in rows.collect()) == written(cluster)


@pytest.mark.rule("PM-14", "PM-68")
@pytest.mark.parametrize("half", [True, False], ids=["asked", "moved"])
def test_a_read_goes_on_where_its_slot_has_gone(cluster: ClusterWorld, half: bool) -> None:
    stream = STREAMS[0]
    Log(cluster, stream).state(*(update(number) for number in range(9)))
    with cluster.store() as store:
        reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=2))
        tips = reader.tips([stream])
        plan = reader.plan({}, tips, {stream: Goal()})[stream]
        pages = reader.read(plan.ranges)
        found = next(pages).column("entry_id").to_pylist()
        cluster.move(stream, half=half)
        found += next(pages).column("entry_id").to_pylist()
        assert reader.tips([stream]) == tips
        if half:
            cluster.end_move(stream)
        found += [entry_id for page in pages for entry_id in page.column("entry_id").to_pylist()]
    assert found == [f"1-{seq}" for seq in range(10)]


@pytest.mark.rule("PM-14", "PM-36", "PM-68")
def test_a_running_stream_follows_slots_that_move(spark: SparkSession, cluster: ClusterWorld, tmp_path: Path) -> None:
    over = threading.Event()
    logs = [Log(cluster, stream) for stream in STREAMS]

    def work() -> None:
        while not over.wait(0.05):
            for log in logs:
                log.state(update(1), update(2))

    def batches() -> int:
        return len(list((tmp_path / "raw" / "share_state").glob("commits/*.json")))

    def until_batches(count: int) -> None:
        for _ in range(BOUND_S):
            if batches() >= count:
                break
            job.wait(1)
        assert batches() >= count

    source = Source(cluster.url, max_rows_per_trigger=1_000)
    job = start(spark, source, tmp_path, [Kind.SHARE_STATE], once=False, trigger_s=0.01)
    writer = threading.Thread(target=work)
    writer.start()
    try:
        for stream in STREAMS[:3]:
            until_batches(batches() + 1)
            cluster.move(stream, half=True)
            until_batches(batches() + 1)
            cluster.end_move(stream)
        over.set()
        writer.join(BOUND_S)
        job.queries[Kind.SHARE_STATE].processAllAvailable()
    finally:
        over.set()
        job.stop()
        writer.join(BOUND_S)
    found = stored(spark, tmp_path, Kind.SHARE_STATE).select("stream", "entry_id", "record_type").collect()
    assert {row.record_type for row in found} == {"claim", "update"}
    assert sorted((row.stream, row.entry_id) for row in found) == written(cluster)


def from_replicas(cluster: ClusterWorld, starts: dict[str, Position] | None = None) -> list[dict[str, Any]]:
    """Return every row, gaps included, that a reader gets from replicas."""
    with Store(cluster.url, replicas=True) as store:
        reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=4))
        plans = reader.plan(starts or {}, reader.tips(reader.streams()))
        batches = [batch for plan in plans.values() for batch in reader.read(plan.ranges, plan.gaps)]
    return [row for batch in batches for row in batch.to_pylist()]


def pages_served(server: Server) -> int:
    """Return the number of XRANGE calls that a node has served since its statistics were reset."""
    (info,) = asyncio.run(server.run(("INFO", "commandstats")))
    counted = re.search(rb"cmdstat_xrange:calls=(\d+)", info)
    return int(counted[1]) if counted else 0


@pytest.mark.rule("PM-5", "PM-14")
def test_pages_come_from_replicas(cluster: ClusterWorld) -> None:
    for number, stream in enumerate(STREAMS):
        Log(cluster, stream).state(*(update(at) for at in range(3 * number)))
    asyncio.run(cluster.nodes.in_step())
    for server in cluster.nodes.servers:
        asyncio.run(server.run(("CONFIG", "RESETSTAT")))
    found = from_replicas(cluster)
    assert sorted((row["stream"], row["entry_id"]) for row in found) == written(cluster)
    replicas = [pages_served(pair.replica) for pair in cluster.nodes.pairs]
    assert min(replicas) > 0
    # A master serves plans through a function, which reads one entry per epoch; `written` reads from it too.
    assert all(pages_served(pair.master) <= 2 * len(STREAMS) for pair in cluster.nodes.pairs)


@pytest.mark.rule("PM-5", "PM-11")
def test_a_replica_that_is_behind_loses_nothing(cluster: ClusterWorld) -> None:
    logs = [Log(cluster, stream) for stream in STREAMS[:3]]
    for log in logs[:2]:
        log.state(*(update(at) for at in range(9)))
    asyncio.run(cluster.nodes.in_step())
    asyncio.run(cluster.nodes.let_replicate(False))
    for log in logs:
        log.state(*(update(at) for at in range(9, 20)))
    cluster.redis.xtrim(STREAMS[1], minid="1-5", approximate=False)
    starts = {STREAMS[1]: Position(EntryId(1, 2), 3)}
    found = from_replicas(cluster, starts)
    assert [json.loads(row["error"])["lost"] for row in found if row["record_type"] == "gap"] == [2]
    entries = [(row["stream"], row["entry_id"]) for row in found if row["record_type"] != "gap"]
    assert sorted(entries) == written(cluster)
    # A reader that is ahead of the replica loses nothing and gets nothing twice.
    read = {stream: Position(EntryId(1, 20), 21) for stream in STREAMS[:2]}
    read[STREAMS[2]] = Position(EntryId(1, 11), 12)
    assert from_replicas(cluster, read) == []


@pytest.mark.rule("PM-5", "PM-14")
def test_without_a_replica_that_answers_its_master_is_read(cluster: ClusterWorld) -> None:
    Log(cluster, STREAMS[0]).state(update(1), update(2))
    asyncio.run(cluster.nodes.let_replicate(True))  # leaves the nodes replicating for the next test
    cluster.nodes.pair_of(STREAMS[0]).replica.stop()
    found = from_replicas(cluster)
    assert [row["entry_id"] for row in found] == ["1-0", "1-1", "1-2"]
