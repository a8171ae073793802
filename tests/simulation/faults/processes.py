"""Faults of whole processes: killed at some time or at a point in their work, stopped, paused, joined by another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from shard_runtime.ownership.placement import ROLES
from tests.simulation.faults.spans import away, span
from tests.simulation.points import Point
from tests.simulation.world import KilledError

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World


def some(rng: Random, shape: Shape) -> str:
    """Draw a process of the cluster."""
    return rng.choice([each.name for each in shape.processes])


def ready(world: World, name: str) -> bool:
    """Return True if a process has started and is not about to end."""
    process = world.processes.get(name)
    return process is not None and process.ready


async def firmly(work: Coroutine[Any, Any, object]) -> None:
    """Complete an action even if the strike ends meanwhile, since half a start or stop would not be a realistic fault.

    Another fault may kill the process during it; then that fault handles the rest.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(KilledError):
            await task
        raise
    except KilledError:
        pass


async def back(world: World, name: str, down_ms: int, knows_dead: bool) -> None:
    """Restart a process after a while, unless another fault already has."""
    await asyncio.sleep(down_ms / 1000)
    await firmly(start(world, name, knows_dead=knows_dead))


async def start(world: World, name: str, *, knows_dead: bool = True, roles: frozenset[str] | None = None) -> None:
    """Start a process unless it is running. The check must be in the task that starts it, since another fault may come
    between two tasks."""
    if not world.present(name):
        await world.start(name, knows_dead=knows_dead, roles=roles)


async def stop(world: World, name: str) -> None:
    """Stop a process if it is ready; the check is in the task that stops it, as in `start`."""
    if ready(world, name):
        await world.stop(name)


async def kill(world: World, name: str) -> None:
    """Kill a process if it is alive."""
    if name in world.processes:
        await world.kill(name)


def _lock(knows_dead: bool) -> str:
    return "knowing its dead" if knows_dead else "as a stranger"


@dataclass(frozen=True)
class Kill:
    """SIGKILL, and a restart within or after the lease, with or without the lock file that shows that the former
    process is dead (CM-12)."""

    name: str
    down_ms: int
    knows_dead: bool

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process."""
        return cls(some(rng, shape), away(rng), rng.random() < 0.5)

    async def strike(self, world: World) -> None:
        """Kill it and restart it."""
        if self.name in world.processes:
            await world.kill(self.name)
            await back(world, self.name, self.down_ms, self.knows_dead)

    def __str__(self) -> str:
        return f"SIGKILL of {self.name}, back after {self.down_ms} ms {_lock(self.knows_dead)}"


@dataclass(frozen=True)
class PowerCut:
    """Every process dies at once; they come back one after the other."""

    down_ms: int
    apart_ms: int
    knows_dead: bool

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw a duration."""
        return cls(away(rng), rng.randint(0, 1_000), rng.random() < 0.5)

    async def strike(self, world: World) -> None:
        """Kill all, start all."""
        names = list(world.processes)
        for name in names:
            await world.kill(name)
        await asyncio.sleep(self.down_ms / 1000)
        for name in names:
            await back(world, name, self.apart_ms, self.knows_dead)

    def __str__(self) -> str:
        return f"SIGKILL of all, back after {self.down_ms} ms, {self.apart_ms} ms apart, {_lock(self.knows_dead)}"


@dataclass(frozen=True)
class Stop:
    """SIGTERM under load: the process's shards move to others, and return after its restart."""

    name: str
    down_ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process."""
        return cls(some(rng, shape), away(rng))

    async def strike(self, world: World) -> None:
        """Stop it and restart it."""
        if ready(world, self.name):
            await firmly(stop(world, self.name))
            await back(world, self.name, self.down_ms, knows_dead=True)

    def __str__(self) -> str:
        return f"SIGTERM of {self.name}, back {self.down_ms} ms after its end"


@dataclass(frozen=True)
class Visit:
    """One more process joins, takes its share of the shards, and leaves again by being stopped or killed."""

    name: str
    roles: tuple[str, ...]
    ms: int
    killed: bool

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw one with every role, or with the roles of an existing process."""
        roles = rng.choice([ROLES, *(each.roles for each in shape.processes)])
        return cls(f"visitor{rng.randrange(3)}", tuple(sorted(roles)), span(rng), rng.random() < 0.3)

    async def strike(self, world: World) -> None:
        """Join and leave."""
        if world.present(self.name):
            return
        try:
            await firmly(start(world, self.name, roles=frozenset(self.roles)))
            await asyncio.sleep(self.ms / 1000)
        finally:
            if self.killed:
                await kill(world, self.name)
            else:
                await firmly(stop(world, self.name))

    def __str__(self) -> str:
        roles = "every role" if frozenset(self.roles) == ROLES else ", ".join(self.roles)
        return f"{self.name} joins with {roles} and is {'killed' if self.killed else 'stopped'} after {self.ms} ms"


@dataclass(frozen=True)
class Pause:
    """SIGSTOP, and SIGCONT within or after the lease."""

    name: str
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process."""
        return cls(some(rng, shape), away(rng))

    async def strike(self, world: World) -> None:
        """Pause it, wait, resume it."""
        await _pause(world, self.name, self.ms)

    def __str__(self) -> str:
        return f"{self.name} is frozen for {self.ms} ms"


async def _pause(world: World, name: str, ms: int) -> None:
    if name not in world.processes:
        return
    world.pause(name)
    try:
        await asyncio.sleep(ms / 1000)
    finally:
        resume(world, name)


def resume(world: World, name: str) -> None:
    """Resume a process if it is still alive."""
    if name in world.processes:
        world.resume(name)


#: Points in a process's work at which a fault may strike, in words.
POINTS: Final = {
    "before a write": Point.BEFORE_WRITE,
    "after a write": Point.AFTER_WRITE,
    "before an answer": Point.BEFORE_ANSWER,
}
#: How long a fault waits for its point.
_ARMED_MS: Final = 4_000
_NTHS: Final = (1, 1, 2, 3, 5, 8, 13)


def _point(rng: Random) -> tuple[str, int]:
    return rng.choice(list(POINTS)), rng.choice(_NTHS)


@dataclass(frozen=True)
class KillAtPoint:
    """SIGKILL just before or after a write, or before a response; `again` times in a row."""

    name: str
    point: str
    nth: int
    again: int
    down_ms: int
    knows_dead: bool

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process at any point."""
        return cls(some(rng, shape), *_point(rng), rng.choice([1, 1, 1, 3]), away(rng), rng.random() < 0.5)

    async def strike(self, world: World) -> None:
        """Wait for the point, kill, restart."""
        for _ in range(self.again):
            if await at_point(world, self.name, self.point, self.nth, lambda: kill(world, self.name)):
                await back(world, self.name, self.down_ms, self.knows_dead)

    def __str__(self) -> str:
        times = "" if self.again == 1 else f", {self.again} times"
        return (
            f"SIGKILL of {self.name} {self.point}, the {self.nth}. from then{times}, back after {self.down_ms} ms "
            f"{_lock(self.knows_dead)}"
        )


@dataclass(frozen=True)
class PauseAtPoint:
    """SIGSTOP just before or after a write, or before a response; then the process continues from there."""

    name: str
    point: str
    nth: int
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process at any point."""
        return cls(some(rng, shape), *_point(rng), away(rng))

    async def strike(self, world: World) -> None:
        """Wait for the point, pause, resume."""

        async def halt() -> None:
            if self.name in world.processes:
                world.pause(self.name)

        if await at_point(world, self.name, self.point, self.nth, halt):
            try:
                await asyncio.sleep(self.ms / 1000)
            finally:
                resume(world, self.name)

    def __str__(self) -> str:
        return f"{self.name} is frozen {self.point}, the {self.nth}. from then, for {self.ms} ms"


async def at_point(world: World, name: str, point: str, nth: int, action: Callable[[], Awaitable[None]]) -> bool:
    """Run `action` at the nth such point from now, if the process reaches it; return whether it did."""
    reached = asyncio.Event()

    async def act() -> None:
        reached.set()
        await action()

    world.points.arm(name, POINTS[point], nth, act)
    try:
        async with asyncio.timeout(_ARMED_MS / 1000):
            await reached.wait()
    except TimeoutError:
        return False
    finally:
        world.points.disarm(name)
    return True
