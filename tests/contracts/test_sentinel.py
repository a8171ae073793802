"""A store with Sentinels: what a replaced master may still do before it learns that it was replaced."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shard_runtime.clock import SystemClock
from shard_runtime.record_log.redis.connection import ConnectionLostError, StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.topology import open_store
from tests.support.cluster_nodes import ran
from tests.support.stores import Server, Valkey

from .world import CLUSTER, GROUP, Process, flush

pytestmark = pytest.mark.asyncio


class Watched:
    """A master with two replicas, and one Sentinel that a test controls."""

    def __init__(self) -> None:
        self.servers = [Server() for _ in range(3)]
        self.sentinel = Server()

    async def start(self) -> None:
        for server in self.servers:
            await server.start()
        for replica in self.servers[1:]:
            await Valkey.follow(replica, self.servers[0])
        await ran(self.servers[0], ("SET", "{meta}:cluster", CLUSTER))
        config = f"{self.sentinel.folder}/sentinel.conf"
        with open(config, "w") as file:  # noqa: ASYNC230  (a test's own small file)
            file.write(f"port {self.sentinel.port}\n")
        await self.sentinel.start_with(config, "--sentinel")
        await self._name(self.servers[0])

    async def _name(self, master: Server) -> None:
        await ran(self.sentinel, ("SENTINEL", "MONITOR", "main", "127.0.0.1", master.port, 9))

    async def replace_master(self) -> None:
        """Promote a replica and let the other one follow it; the old master keeps running and is not notified."""
        _, new, other = self.servers
        await new.run(("REPLICAOF", "NO", "ONE"))
        await Valkey.follow(other, new)
        await ran(self.sentinel, ("SENTINEL", "REMOVE", "main"))
        await self._name(new)

    def close(self) -> None:
        for server in (*self.servers, self.sentinel):
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)


@pytest_asyncio.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    try:
        await made.start()
        yield made
    finally:
        made.close()


@pytest.mark.rule("CM-19", "CM-12", "SR-22")
async def test_a_replaced_master_that_does_not_know_it_is_left_once_its_replicas_are_gone(watched: Watched) -> None:
    settings = StoreSettings(cluster_id=CLUSTER, replicas=2, min_insync_replicas=1, wait_ms=100, call_ms=10_000)
    store = open_store(f"redis+sentinel://127.0.0.1:{watched.sentinel.port}/main")
    log = StoreRecordLog(store, settings, SystemClock())
    try:
        await log.open()
        a = Process(log, 1, 1000)
        e = (await a.claim()).epoch
        before = log.history_of(GROUP)
        reader = await store.connect("main")
        await watched.replace_master()
        assert "role:master" in await watched.servers[0].info()
        (renewed,) = await log.renew([a.renewal(e)])
        assert renewed is not None
        assert renewed.ok
        assert log.history_of(GROUP) != before
        await log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
        assert await ran(watched.servers[1], ("XLEN", GROUP.streams[0])) == [2]
        with pytest.raises(ConnectionLostError, match="closed"):
            await reader.run([("PING",)], 1_000)
    finally:
        await log.close()
