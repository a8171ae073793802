"""A whole cluster in one virtual event loop: real roles and clients on the in-memory store and network.

For scenarios whose every step is told; what chance brings about is the simulator's (`tests/simulation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any
from unittest import mock

from google.protobuf.descriptor import ServiceDescriptor
from prometheus_client import CollectorRegistry

from kip932.ids import SharePartitionKey
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.cluster.nodes import NodeDescription
from shard_runtime.config.process_settings import load_settings
from shard_runtime.ownership.placement import ROLES
from shard_runtime.record_log.memory.store import MemoryStore, memory_cluster_store, memory_log
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.rpc.in_memory_transport import InMemoryNetwork, InMemoryTransport
from share_node.process_store import StoreClient
from share_node.roles import Roles
from tests.support.clocks import LoopClock

CLUSTER_ID = "adversarial"
#: How long a message travels at most.
SLOWEST_S = 0.002
FLAGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "4000",
    "group.share.delivery.count.limit": "10",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.auto.offset.reset": "earliest",
    "listen.port": "9000",
    "shard.compaction.entries.min": "30",
    "shard.history.ms": "0",
    "share.coordinator.snapshot.update.records.per.snapshot": "7",
    "share.coordinator.cold.partition.snapshot.interval.ms": "5000",
}


#: The process that the running task belongs to.
_NODE: ContextVar[Node | None] = ContextVar("node", default=None)


class SlowTransport(InMemoryTransport):
    """Calls of one process, which take time both ways."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.network, name)
        self._world = world

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        await self._world.travel()
        response = await super().call(address, method, request, timeout_s)
        await self._world.travel()
        return response

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        await self._world.travel()
        return await super().open_stream(address, method)


class Server:
    """Where `Roles` register their services."""

    def __init__(self, world: World, address: str) -> None:
        self._world = world
        self._address = address

    def add(self, descriptor: ServiceDescriptor, service: object, *, only_while: object = None) -> None:
        if only_while is not None:
            return  # what is served while older builds are about
        self._world.network.serve(self._address, descriptor, service)


class Node:
    """One process: all roles, or those named."""

    def __init__(self, world: World, name: str, roles: frozenset[str], dead: frozenset[int]) -> None:
        world.numbers += 1
        self.world = world
        self.name = name
        self.roles = roles
        self.incarnation = world.numbers
        self.address = f"{name}:9000"
        self.internal = f"{name}:9001"
        self.fatal: list[str] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        store = StoreSettings(
            cluster_id=CLUSTER_ID, replicas=world.replicas, min_insync_replicas=world.replicas + 1, wait_ms=500
        )
        self.log = memory_log(world.store, name, store, world.clock)
        self.cluster = memory_cluster_store(world.store, name, store)
        flags = {**FLAGS, "node.name": name, "node.roles": ",".join(sorted(roles))}
        flags["store.replicas"] = str(world.replicas)
        flags["store.fsync.always"] = "true" if not world.replicas else "false"
        settings = load_settings(flags)
        self.node = ClusterNode(
            self.log,
            self.cluster,
            world.clock,
            settings,
            me=NodeDescription(name, self.incarnation, self.address, roles, dead=dead, internal_address=self.internal),
            cluster_id=CLUSTER_ID,
            taken=self.fatal.append,
        )
        self._settings = settings
        self._made: Roles | None = None

    async def start(self) -> None:
        world = self.world
        with world.tasks_of(self):
            await self.node.join()
            with mock.patch("share_node.roles.GrpcTransport", return_value=SlowTransport(world, self.name)):
                self._made = Roles(
                    self.node,
                    self._settings,
                    StoreClient(self.log, self.cluster, CLUSTER_ID),
                    world.clock,
                    CollectorRegistry(),
                )
            self._made.serve(Server(world, self.address), Server(world, self.internal))  # type: ignore[arg-type]
            self.node.metadata.subscribe(self._made.metadata_changed)
            self.node.start()
            self._made.start()

    @property
    def state(self) -> Any:
        """The share coordinator."""
        return self._made._state if self._made else None

    async def stop(self) -> None:
        """As SIGTERM does (CM-4)."""
        await self.node.leave()
        assert self._made is not None
        self._made.drain()
        await self.node.stop()
        for address in (self.address, self.internal):
            self.world.network.stop(address)
        await self._made.stop()
        await self.log.close()
        await self.cluster.close()

    async def kill(self) -> None:
        """As SIGKILL does: nothing is released and nothing more is sent."""
        for address in (self.address, self.internal):
            self.world.network.stop(address)
        self.world.store.cut_off(self.name)
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.log.close()
        await self.cluster.close()
        self.world.store._cut_off.discard(self.name)


class World:
    """The cluster, its network and its faults; one seed, one schedule."""

    def __init__(self, seed: int, replicas: int = 0) -> None:
        self.rng = Random(seed)
        self.clock = LoopClock()
        self.store = MemoryStore(self.clock, Random(seed), replicas)
        self.network = InMemoryNetwork()
        self.replicas = replicas
        self.numbers = 0
        self.nodes: dict[str, Node] = {}
        self.dead: dict[str, set[int]] = {}

    async def travel(self) -> None:
        """A message on its way."""
        await asyncio.sleep(self.rng.random() * SLOWEST_S)

    @contextmanager
    def tasks_of(self, node: Node) -> Iterator[None]:
        """Tasks made while this is entered by `node`, and by those tasks, belong to it."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._make_task)
        token = _NODE.set(node)
        try:
            yield
        finally:
            _NODE.reset(token)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **keywords: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **keywords)
        node = _NODE.get()
        if node is not None:
            node.tasks.add(task)
            task.add_done_callback(node.tasks.discard)
        return task

    async def open(self) -> None:
        first = memory_cluster_store(self.store, "init", StoreSettings())
        await first.init_cluster(CLUSTER_ID)
        await first.close()

    async def start(self, name: str, roles: frozenset[str] = ROLES, *, knows_dead: bool = True) -> Node:
        dead = frozenset(self.dead.setdefault(name, set())) if knows_dead else frozenset()
        node = Node(self, name, roles, dead)
        self.dead[name].add(node.incarnation)
        while True:
            try:
                await node.start()
                break
            except Exception as error:
                last = error
                await asyncio.sleep(0.5)
                if self.clock.now_ms() > 1_000_000 + 3_600_000:
                    raise AssertionError(f"{name} never joined: {last}") from last
        self.nodes[name] = node
        return node

    async def stop(self, name: str) -> None:
        await self.nodes.pop(name).stop()

    async def kill(self, name: str) -> None:
        await self.nodes.pop(name).kill()

    # ---- what lies inside

    def states(self) -> dict[SharePartitionKey, Any]:
        """Share-partition states as the coordinators that may answer hold them, where nothing is unconfirmed."""
        found = {}
        for node in self.nodes.values():
            state = node.state
            for index in state.directory.served() if state else ():
                host = state.hosts[index]
                if host.waiting == 0 and host._tenure.lease.valid():
                    found.update(host.shard._states)
        return found

    async def settled(self) -> None:
        """Wait until every shard is served by the node it targets."""
        for _ in range(600):
            await asyncio.sleep(0.1)
            if all(node.node.ownership is not None and node.node.ownership.settled() for node in self.nodes.values()):
                return
        raise AssertionError("shards are still not served after a minute without faults")

    def transport(self, name: str) -> SlowTransport:
        return SlowTransport(self, name)

    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    async def close(self) -> None:
        """No fault any more, and the end of every process."""
        self.store.hook = None
        self.store.heal()
        for name in list(self.nodes):
            await self.stop(name)
        await self.store.close()
