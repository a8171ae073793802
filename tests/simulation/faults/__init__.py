"""Faults: each is a small frozen value that strikes a world and repairs what it broke; its fields are plain JSON."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World


class Fault(Protocol):
    """One kind of fault; an instance says where, when within its strike, and how long."""

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw one with random parameters that fit a cluster of this shape."""
        ...

    async def strike(self, world: World) -> None:
        """Strike, wait as long as the fault lasts, and repair. Bounded; a cancelled strike repairs at once."""
        ...

    def __str__(self) -> str:
        """Describe it in words, for the story."""
        ...
