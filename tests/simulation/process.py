"""One life of a process of the cluster: the real NodeProcess on the simulated network and store.

The RPC server and the outgoing transport, which normally come from the machine, are supplied here to the process that
requests them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from google.protobuf.descriptor import ServiceDescriptor

from kip932.ids import TopicIdPartition
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.config.process_settings import Settings, load_settings
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.quotas import ClientQuotas
from shard_runtime.rpc.server import RpcOptions
from share_node.node.internal import LeaderForNodes
from share_node.node.process import NodeProcess
from share_node.node.process_store import StoreClient
from share_node.store.data_directory import NodeIdentity
from tests.simulation.aging import Aging
from tests.simulation.clock import LIFE, Life, living
from tests.simulation.rights import watch_rights
from tests.simulation.shape import AGE_FLAG, RIGHTS
from tests.twin.store import memory_cluster_store, memory_log

if TYPE_CHECKING:
    from tests.simulation.world import ProcessShape, World

CLUSTER_ID: Final = "simulated"
PORT: Final = 9_000
_DRAIN_POLL_S: Final = 0.05
#: Makes retention run several times within a run.
_RETENTION: Final = ("log.retention.check.interval.ms", "1500")


@lru_cache(maxsize=256)
def settings_of(flags: tuple[tuple[str, str], ...]) -> Settings:
    """Return the settings for these flags; they are immutable, so processes may share them."""
    return load_settings(dict(flags))


class Process:
    """One life of a process. `ended` is the reason why it gave up, "" if it has not; `ready`: it has started and has
    not been asked to stop."""

    def __init__(self, world: World, shape: ProcessShape, incarnation: int, dead: frozenset[int]) -> None:
        self.world = world
        self.name = shape.name
        self.roles = shape.roles
        self.incarnation = incarnation
        self.address = f"{shape.name}:{PORT}"
        self.servers = 0
        self.ended = ""
        self.ready = False
        self.life = Life(world.loop, shape.name, incarnation)
        #: True if it shut down cleanly; then unfinished work is its own fault.
        self.left = False
        self.clock = world.clock_of(shape.name)
        self.settings = settings_of(tuple(sorted((_RETENTION, *world.flags_of(shape).items()))))
        self._dead = dead
        self._made: NodeProcess | None = None

    async def start(self) -> None:
        """Start it as `python -m <role>` does. Raises any error that prevents a process from starting."""
        world, settings = self.world, self.settings
        replicas = world.shape.replicas
        store = StoreSettings(
            cluster_id=CLUSTER_ID, replicas=replicas, min_insync_replicas=world.min_insync_replicas, wait_ms=500
        )
        log = memory_log(world.store, self.name, store, self.clock)
        cluster = memory_cluster_store(world.store, self.name, store)
        await log.open()
        identity = NodeIdentity(self.name, self.incarnation, self._dead, None)
        self._made = made = NodeProcess(settings, identity, StoreClient(log, cluster, CLUSTER_ID), self.clock)
        made.ended.add_done_callback(self._give_up)
        await made.start()

    async def stop(self) -> None:
        """Stop it as SIGTERM does (CM-4)."""
        if self._made is not None:
            await self._made.stop()

    def _give_up(self, reason: asyncio.Future[str]) -> None:
        if not reason.cancelled():
            self.ended = reason.result()
            self.world.gave_up(self)

    # ---- inspection

    @property
    def node(self) -> ClusterNode:
        """Return this process's cluster node; available after its start."""
        assert self._made is not None, "start first"
        return self._made.node

    @property
    def paused(self) -> bool:
        """Return True if it is paused."""
        return self.life.paused

    @property
    def parts(self) -> Any:
        """Return its `Roles`; None before they are created."""
        return self._made._roles if self._made is not None else None

    @property
    def state(self) -> Any:
        """Return its share coordinator, or None."""
        return self.parts._state if self.parts is not None else None

    @property
    def groups(self) -> Any:
        """Return its group coordinator, or None."""
        return self.parts._groups if self.parts is not None else None

    @property
    def leader(self) -> Any:
        """Return its partition leader, or None."""
        return self.parts._leader if self.parts is not None else None

    @property
    def led(self) -> dict[TopicIdPartition, Any]:
        """Return the partitions it leads."""
        return dict(self.leader.led.led()) if self.leader is not None else {}

    @property
    def settled(self) -> bool:
        """Return True if it serves every shard that is assigned to it, as far as it knows."""
        ownership = self._made._node.ownership if self._made is not None and self._made._node is not None else None
        return ownership is not None and ownership.settled()


class _Server:
    """An `RpcServer` of the process that created it: the first one serves clients, the second serves nodes (CM-80)."""

    def __init__(
        self, process: Process, access: Access | None, quotas: ClientQuotas | None, options: RpcOptions
    ) -> None:
        self.host = process.name
        self._access = access
        self._quotas = quotas
        self.port = PORT + process.servers
        process.servers += 1
        self._process = process
        self._world = process.world
        self._services: list[tuple[ServiceDescriptor, object]] = []
        if access is not None and RIGHTS in self._world.shape.pressures:
            watch_rights(process, access)
        self._aging = self._aged(options) if AGE_FLAG in self._world.shape.flags else None

    def _aged(self, options: RpcOptions) -> Aging:
        world, life = self._world, self._process.life
        rng = world.random(f"ages {life} {self.port}")
        return Aging.of(world.loop, life, options, rng, world.history.add)

    def add(self, descriptor: ServiceDescriptor, service: object) -> None:
        process = self._process
        if not isinstance(service, LeaderForNodes):  # part of the leader's own service, which is observed
            service = self._world.observer.watch(descriptor.name, service, process.name, process.incarnation)
        self._services.append((descriptor, service))

    def listen(self) -> int:
        return self.port

    async def start(self) -> int:
        process = self._process
        for descriptor, service in self._services:
            address = f"{self.host}:{self.port}"
            self._world.network.serve(
                process.life, address, descriptor, service, self._access, quotas=self._quotas, aging=self._aging
            )
        return self.port

    async def ready(self, serving: bool) -> None:
        """Do nothing: readiness is never queried here."""

    async def drain(self, grace_s: float, streams_s: float | None = None) -> None:
        """Accept no more calls and wait for open ones; all are treated as streams, for which the wait is shorter."""
        grace_s = grace_s if streams_s is None else min(grace_s, streams_s)
        network, life = self._world.network, self._process.life
        network.refuse(life)
        until_s = network.loop.time() + grace_s
        while network.busy(life) and network.loop.time() < until_s:  # noqa: ASYNC110 - no single event shows it
            await asyncio.sleep(_DRAIN_POLL_S)
        network.gone(life, "the server is shutting down")


#: The processes by their life, for the parts that ask for a server or a transport.
_processes: dict[Life, Process] = {}


def _current() -> Process:
    life = LIFE.get()
    assert life is not None
    return _processes[life]


@contextmanager
def wired() -> Iterator[None]:
    """Inside the block, give a process that requests an RPC server or a transport a simulated one."""

    def server(
        _host: str,
        _port: int,
        options: RpcOptions,
        *_: object,
        access: Access | None = None,
        peers_only: bool = False,
        quotas: ClientQuotas | None = None,
        **__: object,
    ) -> _Server:
        # Simulated nodes have no certificates.
        return _Server(_current(), None if peers_only else access, quotas, options)

    def transport(*_: object, **__: object) -> object:
        process = _current()
        return process.world.network.transport(process.life)

    try:
        with (
            mock.patch("share_node.node.process.RpcServer", server),
            mock.patch("share_node.node.roles.GrpcTransport", transport),
        ):
            yield
    finally:
        _processes.clear()


@contextmanager
def alive(process: Process) -> Iterator[None]:
    """Make everything that is started inside the block belong to this life of a process."""
    _processes[process.life] = process
    with living(process.life):
        yield
