"""Faults of the store and of connections to it. Connections break for one process; the store itself fails for all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self

from tests.simulation.faults.processes import some
from tests.simulation.faults.spans import span
from tests.twin import Stage

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World

#: READONLY comes from a master that was demoted but does not know it yet; the others are what their names say.
_CODES: Final = ("OOM", "READONLY", "NOREPLICAS", "MISCONF")


@dataclass(frozen=True)
class CutFromStore:
    """A process loses its connections to the store and gets no new ones."""

    name: str
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process."""
        return cls(some(rng, shape), span(rng))

    async def strike(self, world: World) -> None:
        """Cut it off, wait, repair."""
        world.storage.cut_off(self.name)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            world.storage.mend(self.name)

    def __str__(self) -> str:
        return f"{self.name} is cut off from the store, {self.ms} ms"


@dataclass(frozen=True)
class LostReplies:
    """A fraction of a process's pipelines, or of their replies, is lost, so outcomes are unknown."""

    name: str
    rate: float
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw few or many."""
        return cls(some(rng, shape), rng.choice([0.05, 0.3, 0.7, 1.0]), span(rng))

    async def strike(self, world: World) -> None:
        """Lose them, wait, repair."""
        world.storage.lose_replies(self.name, self.rate)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            world.storage.lose_replies(self.name, 0.0)

    def __str__(self) -> str:
        return f"{self.name} loses {self.rate:.0%} of what it sends to the store or hears from it, {self.ms} ms"


@dataclass(frozen=True)
class HeldReplies:
    """A fraction of a process's pipelines, or of their replies, arrives late."""

    name: str
    stage: str
    rate: float
    up_to_ms: int
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw a delay that is short, or longer than the lease."""
        stage = rng.choice([Stage.SEND, Stage.REPLY])
        return cls(some(rng, shape), stage.value, rng.choice([0.3, 1.0]), rng.choice([200, 1_000, 4_000]), span(rng))

    async def strike(self, world: World) -> None:
        """Hold them back, wait, repair."""
        world.storage.hold(self.name, Stage(self.stage), self.rate, self.up_to_ms)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            world.storage.hold(self.name, Stage(self.stage), 0.0, 0)

    def __str__(self) -> str:
        return (
            f"{self.rate:.0%} of what {self.name} exchanges with the store is held up to {self.up_to_ms} ms at "
            f"{self.stage}, {self.ms} ms"
        )


@dataclass(frozen=True)
class Unreachable:
    """No process reaches the store."""

    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any length."""
        return cls(span(rng))

    async def strike(self, world: World) -> None:
        """Make it unreachable, wait, restore it."""
        world.storage.vanish()
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            world.storage.appear()

    def __str__(self) -> str:
        return f"no process reaches the store, {self.ms} ms"


@dataclass(frozen=True)
class RestartStore:
    """The store restarts `times` times, keeping everything that it confirmed."""

    times: int
    apart_ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw one restart, or several within a lease."""
        return cls(rng.choice([1, 1, 1, 3]), rng.choice([100, 1_500, 3_000]))

    async def strike(self, world: World) -> None:
        """Restart it."""
        for number in range(self.times):
            if number:
                await asyncio.sleep(self.apart_ms / 1000)
            world.storage.restart()

    def __str__(self) -> str:
        again = "" if self.times == 1 else f" {self.times} times, {self.apart_ms} ms apart"
        return f"the store restarts{again}"


@dataclass(frozen=True)
class Refuse:
    """The store refuses every write, for one period or for several with short pauses in between."""

    code: str
    ms: int
    times: int
    apart_ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any refusal."""
        return cls(rng.choice(_CODES), span(rng), rng.choice([1, 4]), rng.choice([0, 10, 200]))

    async def strike(self, world: World) -> None:
        """Refuse, wait, let some through in between."""
        try:
            for _ in range(self.times):
                world.storage.refuse(self.code)
                await asyncio.sleep(self.ms / self.times / 1000)
                world.storage.refuse(None)
                await asyncio.sleep(self.apart_ms / 1000)
        finally:
            world.storage.refuse(None)

    def __str__(self) -> str:
        pieces = "" if self.times == 1 else f" in {self.times} pieces {self.apart_ms} ms apart"
        return f"the store answers {self.code}, {self.ms} ms{pieces}"


@dataclass(frozen=True)
class FailOver:
    """Replicas lag for a while, then the most advanced one is promoted; entries that none had applied are lost."""

    lagging: int
    lag_ms: int
    keep_connections: bool

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw one lagging replica, or all; sometimes the store's clients do not notice."""
        return cls(rng.randint(1, shape.replicas), rng.choice([0, 20, 300, 2_000]), rng.random() < 0.3)

    async def strike(self, world: World) -> None:
        """Let them lag, fail over."""
        for replica in range(self.lagging):
            world.storage.lag(replica)
        try:
            await asyncio.sleep(self.lag_ms / 1000)
            world.storage.fail_over(keep_connections=self.keep_connections)
        finally:
            world.storage.catch_up()

    def __str__(self) -> str:
        kept = ", connections kept" if self.keep_connections else ""
        return f"fail-over of the store, {self.lagging} replicas {self.lag_ms} ms behind{kept}"


@dataclass(frozen=True)
class Split:
    """A fail-over while one process still reaches the former master."""

    name: str
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process."""
        return cls(some(rng, shape), span(rng))

    async def strike(self, world: World) -> None:
        """Split, wait, heal."""
        world.storage.split(self.name)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            world.storage.heal()

    def __str__(self) -> str:
        return f"fail-over of the store, and {self.name} stays with the former master, {self.ms} ms"
