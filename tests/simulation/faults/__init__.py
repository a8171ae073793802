"""Faults: each is a small frozen value that strikes the simulated world and then repairs what it broke; its fields are
plain JSON."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World


class Fault(Protocol):
    """One kind of fault; an instance defines where, when within its strike, and for how long."""

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw a fault with random parameters that are valid for a cluster of this shape."""
        ...

    async def strike(self, world: World) -> None:
        """Strike, wait while the fault lasts, and repair. The duration is bounded; a cancelled strike repairs at
        once."""
        ...

    def __str__(self) -> str:
        """Describe it in words, for the story."""
        ...
