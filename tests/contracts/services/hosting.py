"""The implementations on which the client-facing contract is tested: the client's fake, and the real services hosted in
two ways.

A test uses `kip932.rpc.transport` and cannot distinguish them. There are three hostings, with two nodes each:

* `fake`: the FakeCluster of the client's unit tests, on virtual time;
* `simulated`: two processes with all roles, as the simulator runs them: the real services on the in-memory store and
  network, on virtual time;
* `node`: `sharegroups up` and one more partition leader over gRPC, on a real Valkey and real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from inspect import Signature, signature
from typing import Any, Protocol

from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import Transport
from tests.integration.scenarios.wire import CALL_S, METHODS, Wire
from tests.simulation import determinism
from tests.simulation.shape import Shape
from tests.simulation.world import World
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.node import QUICK, Cluster
from tests.support.virtual_time import run

#: Groups start at the earliest record and use Kafka's assignor, like the fake's; the rest are defaults.
SETTINGS = {**QUICK, "group.share.auto.offset.reset": "earliest", "group.share.assignors": "simple"}
#: Settings that the simulator lowers, reset to their defaults.
DEFAULTS = {
    "group.share.auto.offset.reset": "earliest",
    "group.share.record.lock.duration.ms": "30000",
    "group.share.delivery.count.limit": "5",
    "group.share.session.timeout.ms": "45000",
    "group.share.heartbeat.interval.ms": "5000",
}


class Services(Wire):
    """Running services and a client of them. Every `Services` has its own connections."""

    def __init__(self, bootstrap: str, connect: Callable[[], Transport], fake: FakeCluster | None = None) -> None:
        self.bootstrap = bootstrap
        self.wire = connect()
        self._connect = connect
        self._fake = fake
        self._more: list[Services] = []

    async def call(self, name: str, request: Any, address: str | None = None) -> Any:
        return await self.wire.call(address or self.bootstrap, METHODS[name], request, CALL_S)

    async def stream(self, name: str, address: str) -> Any:
        """Open a stream by the name of its RPC."""
        return await self.wire.open_stream(address, METHODS[name])

    def another_client(self) -> Services:
        """Return the same services over other connections."""
        made = Services(self.bootstrap, self._connect, self._fake)
        self._more.append(made)
        return made

    async def _until_served(self, name: str, topic_id: bytes, partition: int, partitions: int) -> None:
        if self._fake is None:  # the fake's leaders serve from the start
            await super()._until_served(name, topic_id, partition, partitions)

    async def lock_ms(self, group: str, ms: int) -> None:
        """Set a group's lock duration. It is the only setting that is set differently in the fake."""
        if self._fake is not None:
            self._fake.lock_ms = ms
        else:
            await self.set_group(group, {"share.record.lock.duration.ms": str(ms)})

    async def close(self) -> None:
        for made in self._more:
            await made.close()
        await self.wire.close()


#: A test of the contract.
Test = Callable[..., Coroutine[Any, Any, None]]


class Hosting(Protocol):
    """Runs one test on services of its kind."""

    def play(self, test: Callable[[Services], Awaitable[None]]) -> None: ...


async def _played(services: Services, test: Callable[[Services], Awaitable[None]]) -> None:
    try:
        await test(services)
    finally:
        await services.close()


class Fake:
    """The client's fake cluster, a new one for each test."""

    def play(self, test: Callable[[Services], Awaitable[None]]) -> None:
        async def main() -> None:
            fake = FakeCluster(2)
            await _played(Services(fake.bootstrap, fake.transport, fake), test)

        run(main())


class Simulated:
    """Two real processes in memory, new ones for each test."""

    def play(self, test: Callable[[Services], Awaitable[None]]) -> None:
        async def main() -> list[str]:
            world = World(1, Shape.two(0, **DEFAULTS))
            await world.open()
            async with asyncio.TaskGroup() as group:
                for each in world.shape.processes:
                    group.create_task(world.start(each.name))
            await world.settled()
            bootstrap, _, _ = world.bootstrap().partition(",")
            clients = iter(range(100))
            await _played(Services(bootstrap, lambda: world.transport(f"client-{next(clients)}")), test)
            await world.close()
            return world.complaints

        assert determinism.run(1, main) == []


class Node:
    """Processes on a real store, shared by all tests; each test uses its own topics and groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def play(self, test: Callable[[Services], Awaitable[None]]) -> None:
        async def main() -> None:
            await _played(Services(self._cluster.bootstrap, GrpcTransport), test)

        asyncio.run(main())


def contract(test: Test) -> Callable[..., None]:
    """Turn a coroutine function into a test; its parameters are the services, followed by pytest fixtures."""

    @wraps(test)
    def played(hosting: Hosting, **fixtures: Any) -> None:
        hosting.play(lambda services: test(services, **fixtures))

    first, *others = signature(test).parameters.values()
    played.__signature__ = Signature([first.replace(name="hosting"), *others])  # type: ignore[attr-defined]  # for pytest
    return played
