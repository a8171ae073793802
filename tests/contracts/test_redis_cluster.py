"""The same logs on a Redis Cluster of three nodes: shards are found by slot, and followed when a slot moves."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio

from shard_runtime.clock import SystemClock
from shard_runtime.record_log import Appended, Entry, ShardId, ShardKind, StreamAppend, StreamId
from shard_runtime.redis.cluster_store import StoreClusterStore
from shard_runtime.redis.connection import Store, StoreSettings
from shard_runtime.redis.keys import SLOTS, slot_of
from shard_runtime.redis.log import StoreRecordLog
from shard_runtime.redis.topology import open_store

from .deployment import BOUND_S, Server, free_port
from .world import CLUSTER, Process

pytestmark = pytest.mark.asyncio
SHARDS = [ShardId(ShardKind.GROUP, str(i)) for i in range(12)]
SETTINGS = StoreSettings(cluster_id=CLUSTER, call_ms=10_000, backoff_ms=5, backoff_max_ms=50)


class RedisCluster:
    """Three masters without replicas."""

    def __init__(self) -> None:
        self._bus = [free_port() for _ in range(3)]
        self.servers = [
            Server("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", str(bus))
            for bus in self._bus
        ]
        self.logs: list[StoreRecordLog | StoreClusterStore] = []

    async def start(self) -> None:
        for server in self.servers:
            await server.start()
        bounds = [SLOTS * i // 3 for i in range(4)]
        for server, bus, (first, end) in zip(self.servers, self._bus, pairwise(bounds), strict=True):
            await server.run(("CLUSTER", "ADDSLOTSRANGE", first, end - 1))
            await self.servers[0].run(("CLUSTER", "MEET", "127.0.0.1", server.port, bus))
        for server in self.servers:
            await self._until_ok(server)

    @staticmethod
    async def _until_ok(server: Server) -> None:
        for _ in range(BOUND_S * 50):
            (info,) = await server.run(("CLUSTER", "INFO"))
            if "cluster_state:ok" in str(info) and "cluster_known_nodes:3" in str(info):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"the cluster did not form: {info}")

    def store(self) -> Store:
        return open_store(f"redis+cluster://127.0.0.1:{self.servers[1].port}")

    async def process(self, node_id: int) -> Process:
        log = StoreRecordLog(self.store(), SETTINGS, SystemClock())
        self.logs.append(log)
        await log.open()
        return Process(log, node_id, node_id * 1000)

    async def move_slot(self, key: str) -> None:
        """Move a slot with all its keys to another node."""
        slot = slot_of(key)
        source = self.servers[slot * 3 // SLOTS]
        target = next(server for server in self.servers if server is not source)
        ids = {id(server): (await server.run(("CLUSTER", "MYID")))[0] for server in (source, target)}
        await target.run(("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[id(source)]))
        await source.run(("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[id(target)]))
        (keys,) = await source.run(("CLUSTER", "GETKEYSINSLOT", slot, 100))
        await source.run(("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys))
        for server in (target, source, *self.servers):
            await server.run(("CLUSTER", "SETSLOT", slot, "NODE", ids[id(target)]))

    async def close(self) -> None:
        for log in self.logs:
            await log.close()
        for server in self.servers:
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[RedisCluster]:
    made = RedisCluster()
    try:
        await made.start()
        store = StoreClusterStore(made.store(), SETTINGS)
        made.logs.append(store)
        await store.init_cluster(CLUSTER)
        yield made
    finally:
        await made.close()


@pytest.mark.rule("CM-10", "CM-3", "CM-19")
async def test_shards_are_spread_over_nodes_and_each_node_has_its_writer(cluster: RedisCluster) -> None:
    a = await cluster.process(1)
    epochs = {shard: (await a.claim(shard)).epoch for shard in SHARDS}
    histories = {a.log.history_of(shard) for shard in SHARDS}
    assert len(histories) == 3
    answers = await asyncio.gather(
        *(
            a.log.append(
                shard, epoch, [StreamAppend(shard.streams[0], [Entry(StreamId(epoch, 1), "S", shard.name.encode())])]
            )
            for shard, epoch in epochs.items()
        )
    )
    assert answers == [Appended(StreamId(epoch, 1), 0) for epoch in epochs.values()]
    renewed = await a.log.renew([a.renewal(epoch, shard) for shard, epoch in epochs.items()])
    assert [answer is not None and answer.ok for answer in renewed] == [True] * len(SHARDS)
    assert a.log.available
    for shard, epoch in epochs.items():
        (entry,) = await a.log.read(shard.streams[0], StreamId(epoch, 0), None, 10)
        assert entry.record == shard.name.encode()
        assert await a.log.release(shard, a.incarnation, epoch)


@pytest.mark.rule("CM-19", "CM-10", "CM-13")
async def test_a_shard_is_followed_when_its_slot_moves(cluster: RedisCluster) -> None:
    a = await cluster.process(1)
    shard = SHARDS[0]
    epoch = (await a.claim(shard)).epoch
    before = a.log.history_of(shard)
    await cluster.move_slot(shard.owner_key)
    entry = Entry(StreamId(epoch, 1), "S", b"after the move")
    appended = await a.log.append(shard, epoch, [StreamAppend(shard.streams[0], [entry])])
    assert appended.tip == StreamId(epoch, 1 + appended.noops)
    assert a.log.history_of(shard) != before
    assert (await a.log.read(shard.streams[0], StreamId(epoch, 0), None, 10))[0] == entry
    (renewed,) = await a.log.renew([a.renewal(epoch, shard)])
    assert renewed is not None
    assert renewed.ok


@pytest.mark.rule("CM-20", "CM-4")
async def test_cluster_wide_keys_work_on_their_nodes(cluster: RedisCluster) -> None:
    store = StoreClusterStore(cluster.store(), SETTINGS)
    cluster.logs.append(store)
    assert await store.cluster_id() == CLUSTER
    assert await store.append_metadata(1, b"one")
    await store.put_hints(ShardKind.TOPIC, {"t:0": (1, 2)})
    assert await store.hints(ShardKind.TOPIC) == {"t:0": (1, 2)}
