"""Faults: each is a small frozen value that strikes a world and mends what it broke; its fields are plain JSON."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World


class Fault(Protocol):
    """One kind of bad luck; an instance says where, when within its strike, and how long."""

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """One with parameters by chance, fitting a cluster of this shape."""
        ...

    async def strike(self, world: World) -> None:
        """Do it, wait as long as it lasts, and mend it. Bounded; a cancelled strike mends at once."""
        ...

    def __str__(self) -> str:
        """It in words, as the story tells it."""
        ...
