"""Faults that hit clients. A plan does not know their names, so it numbers them; a number is resolved when the fault
strikes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self

from tests.simulation.faults.spans import away

if TYPE_CHECKING:
    from tests.simulation.world import Shape, World

_CLIENT: Final = "client "
_NUMBERS: Final = 8


def some_client(rng: Random) -> str:
    """Return a client's number, in the form used in plans."""
    return f"{_CLIENT}{rng.randrange(_NUMBERS)}"


def meant(world: World, name: str) -> str:
    """Return the process that a name in a plan refers to now; a client's number is returned unchanged if there is no
    such client.

    A group's administrator has the name of the group, which may also be the name of a node (`g1`); then the node is
    meant.
    """
    clients = [each for each in world.clients if each not in world.processes]
    if not name.startswith(_CLIENT) or not clients:
        return name
    return clients[int(name.removeprefix(_CLIENT)) % len(clients)]


@dataclass(frozen=True)
class PauseClient:
    """SIGSTOP a client, and SIGCONT it when its locks and its session may have expired."""

    client: str
    ms: int

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> Self:
        """Draw any client."""
        return cls(some_client(rng), away(rng))

    async def strike(self, world: World) -> None:
        """Pause it, wait, resume it."""
        name = meant(world, self.client)
        if name not in world.clients:
            return
        world.pause(name)
        try:
            await asyncio.sleep(self.ms / 1000)
        finally:
            if name in world.clients:
                world.resume(name)

    def __str__(self) -> str:
        return f"{self.client} is frozen for {self.ms} ms"


#: From less than a short session (`shape.FROZEN_SESSION_MS`) to more than any client may be silent.
_FROZEN_MS: Final = (2_000, 9_000)


def frozen(rng: Random) -> list[PauseClient]:
    """Draw clients that are paused for about as long as their session or longer, for a run with this pressure."""
    return [PauseClient(some_client(rng), rng.randint(*_FROZEN_MS)) for _ in range(rng.randint(3, 6))]
