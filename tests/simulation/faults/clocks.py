"""Clock faults."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self

from tests.simulation.faults.processes import some
from tests.simulation.faults.spans import span

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World

LOCK_FLAG: Final = "group.share.record.lock.duration.ms"
_LOCK_MS: Final = 4_000


@dataclass(frozen=True)
class Jump:
    """The wall clock of one process jumps, and later jumps back."""

    name: str
    by_ms: int
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw a jump by the lock duration or a multiple of it, forward or back; sometimes by an hour."""
        lock_ms = int(shape.flags.get(LOCK_FLAG, _LOCK_MS))
        by_ms = rng.choice([lock_ms, lock_ms, 2 * lock_ms, 3_600_000]) * rng.choice([1, -1])
        return cls(some(rng, shape), by_ms, span(rng))

    async def strike(self, world: World) -> None:
        """Jump, wait, jump back."""
        world.jump(self.name, self.by_ms)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            world.jump(self.name, -self.by_ms)

    def __str__(self) -> str:
        return f"the clock of {self.name} jumps by {self.by_ms} ms, and back after {self.ms} ms"
