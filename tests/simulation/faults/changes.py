"""Faults in the middle of a change to a group, between its first write and its last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self

from tests.simulation.faults.processes import back, kill, resume
from tests.simulation.faults.spans import away

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World

#: How long a strike waits for a change to start.
_WAITS_S: Final = 4.0
#: Measured from the decision on the change's first write; that write, the calls to the share coordinators and the last
#: write follow.
_DELAYS_MS: Final = (0, 1, 2, 4, 6, 10, 20)


@dataclass(frozen=True)
class AmidChange:
    """SIGKILL or SIGSTOP a moment after a coordinator started a change (`deletion`: one that deletes state). It hits
    the coordinator's own process, or another one (`other`: which one; −1: the coordinator's own)."""

    deletion: bool
    killed: bool
    other: int
    delay_ms: int
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any process of the cluster; half of the time, the coordinator itself."""
        other = rng.randrange(len(shape.processes)) if rng.random() < 0.5 else -1
        return cls(rng.random() < 0.7, rng.random() < 0.6, other, rng.choice(_DELAYS_MS), away(rng))

    async def strike(self, world: World) -> None:
        """Wait for a change, strike, repair."""
        try:
            async with asyncio.timeout(_WAITS_S):
                name = await world.change_begun(deletion=self.deletion)
        except TimeoutError:
            return
        await asyncio.sleep(self.delay_ms / 1000)
        others = [each.name for each in world.shape.processes if each.name != name]
        if self.other >= 0 and others:
            name = others[self.other % len(others)]
        if self.killed:
            await kill(world, name)
            await back(world, name, self.ms, knows_dead=True)
        elif name in world.processes:
            world.pause(name)
            try:
                await asyncio.sleep(self.ms / 1000)
            finally:
                resume(world, name)

    def __str__(self) -> str:
        whose = "its coordinator" if self.other < 0 else f"another process, {self.other}"
        kind = "a deletion" if self.deletion else "a change"
        what = "is killed" if self.killed else "is frozen"
        return f"{self.delay_ms} ms into {kind} of a group {whose} {what} for {self.ms} ms"
