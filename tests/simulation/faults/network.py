"""Network faults: cuts in one direction or both, silent or refused; loss, duplicates, delay, reordering; broken
streams."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self

from shard_runtime.ownership.placement import ROLE_GROUP_COORDINATOR, ROLE_PARTITION_LEADER, ROLE_SHARE_COORDINATOR
from tests.simulation.faults.clients import meant, some_client
from tests.simulation.faults.spans import span

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World

_WAYS: Final = ("both ways", "one way", "the other way")


def _of_role(rng: Random, shape: Shape, role: str, other_than: str = "") -> str:
    names = [each.name for each in shape.processes if role in each.roles]
    return rng.choice([name for name in names if name != other_than] or names)


def _pair(rng: Random, shape: Shape) -> tuple[str, str]:
    """Draw two ends that communicate: a leader and a coordinator elsewhere, or a client and any process."""
    leader = _of_role(rng, shape, ROLE_PARTITION_LEADER)
    match rng.randrange(3):
        case 0:
            return leader, _of_role(rng, shape, ROLE_SHARE_COORDINATOR, leader)
        case 1:
            return leader, _of_role(rng, shape, ROLE_GROUP_COORDINATOR, leader)
        case _:
            return some_client(rng), rng.choice([each.name for each in shape.processes])


@dataclass(frozen=True)
class Cut:
    """Nothing passes between two processes, in both directions or one; messages are dropped silently, or refused."""

    a: str
    b: str
    way: str
    refused: bool
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw a leader and a coordinator, or a client and a process."""
        return cls(*_pair(rng, shape), rng.choice(_WAYS), rng.random() < 0.4, span(rng))

    async def strike(self, world: World) -> None:
        """Cut, wait, heal."""
        a, b = meant(world, self.a), meant(world, self.b)
        pairs = [(a, b)] if self.way != _WAYS[2] else []
        pairs += [(b, a)] if self.way != _WAYS[1] else []
        if a == b:
            return
        for pair in pairs:
            world.network.cut(*pair, refused=self.refused)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            for pair in pairs:
                world.network.heal(*pair)

    def __str__(self) -> str:
        return f"cut {self.a} - {self.b}, {self.way}, {'refused' if self.refused else 'silent'}, {self.ms} ms"


@dataclass(frozen=True)
class Isolate:
    """A process reaches no other process and no client, but still reaches the store."""

    name: str
    refused: bool
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process."""
        return cls(rng.choice([each.name for each in shape.processes]), rng.random() < 0.4, span(rng))

    async def strike(self, world: World) -> None:
        """Cut it off, wait, heal."""
        others = [name for name in (*world.processes, *world.clients) if name != self.name]
        pairs = [pair for other in others for pair in ((self.name, other), (other, self.name))]
        for pair in pairs:
            world.network.cut(*pair, refused=self.refused)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            for pair in pairs:
                world.network.heal(*pair)

    def __str__(self) -> str:
        return f"{self.name} reaches nothing but the store, {'refused' if self.refused else 'silent'}, {self.ms} ms"


@dataclass(frozen=True)
class BadNetwork:
    """Messages everywhere are lost, duplicated, late and out of order."""

    lose: float
    duplicate: float
    slowest_ms: int
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw one or several of these."""
        lose, duplicate = rng.choice([(0.1, 0.0), (0.0, 0.3), (0.4, 0.0), (0.1, 0.3), (0.0, 0.0)])
        return cls(lose, duplicate, rng.choice([2, 50, 300, 300, 2_000]), span(rng))

    async def strike(self, world: World) -> None:
        """Degrade the network, wait, restore its previous state."""
        network = world.network
        before = network.lose, network.duplicate, network.delay_ms
        network.lose, network.duplicate = self.lose, self.duplicate
        network.delay_ms = (0.1, float(self.slowest_ms))
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            network.lose, network.duplicate, network.delay_ms = before

    def __str__(self) -> str:
        rates = f"{self.lose:.0%} of messages lost, {self.duplicate:.0%} doubled"
        return f"{rates}, up to {self.slowest_ms} ms late, {self.ms} ms"


@dataclass(frozen=True)
class BreakStreams:
    """Connections with streams break, several times in a row."""

    share: float
    times: int
    apart_ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw one break of all streams, or repeated breaks of some."""
        return cls(rng.choice([0.3, 0.7, 1.0]), rng.choice([1, 1, 4]), rng.choice([20, 300, 1_500]))

    async def strike(self, world: World) -> None:
        """Break them."""
        rng = world.random(f"{self}")
        for number in range(self.times):
            if number:
                await asyncio.sleep(self.apart_ms / 1000)
            world.network.break_streams(rng, self.share)

    def __str__(self) -> str:
        again = "" if self.times == 1 else f", {self.times} times, {self.apart_ms} ms apart"
        return f"{self.share:.0%} of the streams break{again}"
