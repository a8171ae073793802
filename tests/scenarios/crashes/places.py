"""The places of a cluster at which a process can die: before and after each write of a coordinator, and each call.

A pipeline that appends to a coordinator's log passes a place when it reaches the store, and another when the store has
executed it; a call passes one when it reaches the share coordinator, and another when the coordinator has determined
its response. At the chosen place processes are killed as by SIGKILL; messages that they have sent by then still take
effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from kip932.internal.v1 import share_coordinator_service_pb2 as state_pb
from kip932.rpc.transport import service_methods
from shard_runtime.record_log.redis.connection import Command
from shard_runtime.rpc.binding import snake_case
from tests.simulation.clock import context_of
from tests.simulation.storage import SimStorage
from tests.simulation.world import World
from tests.twin.store import CommandsArrived

_STATE: Final = state_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"]
#: The logs whose appends are places, by key prefix.
_LOGS: Final = {"{gc:": "group append", "{sgs:": "share append"}
#: The calls with places.
_CALLS: Final = ("InitializeShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary")


class Places:
    """Records the places passed while `armed`; at place number `at` it kills `victims`."""

    def __init__(self, world: World, at: int = 0, victims: Sequence[str] = ()) -> None:
        self.names: list[str] = []
        self.armed = False
        self.crashed = asyncio.Event()
        self._world = world
        self._at = at
        self._victims = victims
        world.storage.in_parts = 0.0
        world.store.network = _AtTheStore(world.storage, self)
        world.observer = _AtTheService(self)

    async def passed(self, name: str) -> None:
        """Pass a place; the caller continues only if its process is still alive."""
        if not self.armed:
            return
        self.names.append(name)
        if len(self.names) == self._at:
            self.armed = False
            for victim in self._victims:
                await self._world.kill(victim)
            self.crashed.set()

    def outside(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run work that belongs to no process, so that it continues when processes die."""

        async def go() -> None:
            await work

        return self._world.loop.create_task(go(), context=context_of(None))

    def lives(self, name: str, incarnation: int) -> bool:
        """Return whether this incarnation of a process still runs."""
        process = self._world.processes.get(name)
        return process is not None and process.incarnation == incarnation

    def incarnation(self, name: str) -> int:
        """Return the current incarnation of a process."""
        return self._world.processes[name].incarnation


class _AtTheStore:
    """The network between processes and the store, with a place before and after each append by a coordinator."""

    def __init__(self, storage: SimStorage, places: Places) -> None:
        self._storage = storage
        self._places = places

    def sent(self, client: str, commands: Sequence[Command], on: CommandsArrived, lost: Callable[[], None]) -> None:
        name = _append(commands)
        if name is None or not self._places.armed:
            self._storage.sent(client, commands, on, lost)
            return
        incarnation = self._places.incarnation(client)

        async def arrived() -> None:
            place = f"before {name}"
            for count in _flushes(commands):
                await self._places.passed(place)
                # A process that dies here has not sent the rest; the next place is dying after it was sent.
                if not self._places.lives(client, incarnation):
                    lost()
                    return
                on(count)
                place = f"between {name}s"

        self._storage.sent(client, commands, lambda _: _begin(self._places, arrived()), lost)

    def answered(
        self, client: str, commands: Sequence[Command], on: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        name = _append(commands)
        leave = partial(self._storage.answered, client, commands, on, lost)
        if name is None or not self._places.armed:
            leave()
            return

        async def executed() -> None:
            await self._places.passed(f"after {name}")
            leave()

        _begin(self._places, executed())


class _AtTheService:
    """Wraps each share coordinator's service, with a place before and after each call from a group coordinator."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def watch(self, service_name: str, service: object, _process: str, _incarnation: int) -> object:
        """Return the service, or the wrapper that replaces it."""
        return _Service(service, self._places) if service_name == _STATE.name else service


class _Service:
    def __init__(self, service: object, places: Places) -> None:
        self._places = places
        for name in service_methods(_STATE):
            handler = getattr(service, snake_case(name), None)
            if handler is not None:
                setattr(self, snake_case(name), partial(self._call, name, handler) if name in _CALLS else handler)

    async def _call(self, name: str, handler: Callable[..., Awaitable[Any]], request: Any, context: Any) -> Any:
        await self._places.outside(self._places.passed(f"before {name}"))
        answer = await handler(request, context)
        await self._places.outside(self._places.passed(f"after {name}"))
        return answer


def _append(commands: Sequence[Command]) -> str | None:
    """Return the name of the log that a pipeline appends records to; None for claims, renewals and reads."""
    for command in commands:
        if command[0] == "XADD" and str(command[1]).endswith(":log"):
            for begin, name in _LOGS.items():
                if str(command[1]).startswith(begin):
                    return name
    return None


def _flushes(commands: Sequence[Command]) -> list[int]:
    """Return where each transaction of a pipeline ends; the last one includes everything after it. A coordinator writes
    to several shards in one pipeline."""
    ends = [index + 1 for index, command in enumerate(commands) if command[0] == "EXEC"]
    return [*ends[:-1], len(commands)]


def _begin(places: Places, work: Awaitable[None]) -> None:
    places.outside(work)
