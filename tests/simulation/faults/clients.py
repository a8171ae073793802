"""Faults of clients. A plan does not know their names and numbers them; the client is resolved when a fault strikes."""

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
    """Return a client, as plans name it."""
    return f"{_CLIENT}{rng.randrange(_NUMBERS)}"


def meant(world: World, name: str) -> str:
    """Return the process that a name of a plan means now; a client's name stays as it is when there is no such client.

    The administrator of a group has the group's name, which may be a node's too (`g1`): that name means the node.
    """
    clients = [each for each in world.clients if each not in world.processes]
    if not name.startswith(_CLIENT) or not clients:
        return name
    return clients[int(name.removeprefix(_CLIENT)) % len(clients)]


@dataclass(frozen=True)
class PauseClient:
    """SIGSTOP of a client, and SIGCONT when its locks and its session may have expired."""

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


#: From shorter than a short session (`shape.FROZEN_SESSION_MS`) to longer than any client may be silent.
_FROZEN_MS: Final = (2_000, 9_000)


def frozen(rng: Random) -> list[PauseClient]:
    """Draw clients that are paused for about as long as their session, or longer, for a run that has such."""
    return [PauseClient(some_client(rng), rng.randint(*_FROZEN_MS)) for _ in range(rng.randint(3, 6))]
