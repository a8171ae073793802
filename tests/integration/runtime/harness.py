"""The processes of one cluster on the in-memory store, in one event loop, each with simplified shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from kip932.errors import KafkaError
from shard_runtime.clock import SystemClock
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.cluster.nodes import NodeDescription
from shard_runtime.config.process_settings import load_settings
from shard_runtime.hosting.shard_host import HostState, ShardHost
from shard_runtime.ownership.lease import Lease
from shard_runtime.ownership.placement import ROLES
from shard_runtime.record_log.cluster_store import ClusterStore
from shard_runtime.record_log.protocol import Claimed, RecordLog, ShardId, ShardKind
from shard_runtime.record_log.redis.connection import StoreSettings
from tests.support.toy_shard import Record, ToyCodec, ToyShard
from tests.twin.store import MemoryStore, memory_cluster_store, memory_log

CLUSTER_ID = "test-cluster"
LEASE_MS = 600
FLAGS = {
    "lease.ms": str(LEASE_MS),
    "lease.renew.interval.ms": "100",
    "offsets.topic.num.partitions": "10",
    "share.coordinator.state.topic.num.partitions": "4",
    "store.fsync.always": "true",
}


class Leader:
    """An owner of a topic shard that only records its notifications."""

    demand = 0

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.reported: list[str] = []

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        self.lease = lease
        self.reported.append(f"gained {claimed.epoch > 0}")

    def lost(self, reason: str) -> None:
        self.lease = None
        self.reported.append("lost")

    async def releasing(self) -> None:
        self.reported.append("releasing")


class Process:
    """One node: its own connections, hosts for group shards, leaders for topic shards."""

    def __init__(self, cluster: Cluster, name: str, number: int, flags: dict[str, str], dead: frozenset[int]) -> None:
        clock = SystemClock()
        settings = StoreSettings(cluster_id=CLUSTER_ID, wait_ms=50, backoff_ms=5, backoff_max_ms=20, call_ms=300)
        self.name = name
        self.log: RecordLog = memory_log(cluster.store, name, settings)
        self.store: ClusterStore = memory_cluster_store(cluster.store, name, settings)
        self.fatal: list[str] = []
        self.hosts: dict[ShardId, ShardHost[object, Record]] = {}
        self.leaders: dict[ShardId, Leader] = {}
        self.incarnation = number
        self.node = ClusterNode(
            self.log,
            self.store,
            clock,
            load_settings({**FLAGS, **flags}),
            me=NodeDescription(name, number, f"127.0.0.1:{number}", ROLES, dead=dead),
            cluster_id=CLUSTER_ID,
            taken=self.fatal.append,
        )
        self.node.serve(ShardKind.GROUP, self._host)
        self.node.serve(ShardKind.TOPIC, self._leader)

    def _host(self, shard: ShardId) -> ShardHost[object, Record]:
        host: ShardHost[object, Record] = ShardHost(shard, ToyShard, ToyCodec(), self.log, SystemClock())
        self.hosts[shard] = host
        return host

    def _leader(self, shard: ShardId) -> Leader:
        return self.leaders.setdefault(shard, Leader())

    async def start(self) -> Process:
        await self.node.join()
        self.node.start()
        return self

    def serving(self) -> set[str]:
        """Return the names of the group shards that this process serves."""
        return {
            host.shard_id.name
            for host in self.hosts.values()
            if host.state is HostState.ACTIVE and host.shard is not None
        }

    async def submit(self, shard: str, command: object) -> object:
        """Run a command on a group shard; retries for a while."""
        for _ in range(200):
            host = self.hosts.get(ShardId(ShardKind.GROUP, shard))
            if host is not None:
                try:
                    return await host.submit(command)
                except KafkaError:
                    pass
            await asyncio.sleep(0.02)
        raise AssertionError(f"shard {shard} was never served by {self.name}")

    async def stop(self) -> None:
        await self.node.leave()
        await self.node.stop()
        await self.close()

    async def kill(self) -> None:
        """Stop as if by SIGKILL: nothing is released, nothing is sent."""
        ownership = self.node.ownership
        assert ownership is not None
        for task in [ownership._runner, *ownership._tasks, self.node._listener, self.node.metadata._task,
                     self.node.registry._task, self.node._deleted_topics._task]:  # fmt: skip
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for host in self.hosts.values():
            host.lost("killed")
        await self.close()

    async def close(self) -> None:
        await self.store.close()
        await self.log.close()


class Cluster:
    """The store, and the processes that share it."""

    def __init__(self) -> None:
        self.store = MemoryStore(SystemClock())
        self.processes: list[Process] = []
        self._number = 0

    async def __aenter__(self) -> Cluster:
        first = memory_cluster_store(self.store, "init", StoreSettings())
        await first.init_cluster(CLUSTER_ID)
        await first.close()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.heal()
        for process in list(self.processes):
            await self.stop(process)
        await self.store.close()

    def process(self, name: str, flags: dict[str, str] | None = None, dead: frozenset[int] = frozenset()) -> Process:
        self._number += 1
        return Process(self, name, self._number, flags or {}, dead)

    async def start(self, name: str, dead: frozenset[int] = frozenset()) -> Process:
        process = self.process(name, dead=dead)
        self.processes.append(process)
        return await process.start()

    async def stop(self, process: Process) -> None:
        self.processes.remove(process)
        await process.stop()

    async def kill(self, process: Process) -> None:
        self.processes.remove(process)
        await process.kill()


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until the condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, "the awaited event did not happen in time"
        await asyncio.sleep(0.005)
