"""All kinds of faults, with their relative frequencies."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.faults import Fault
from tests.simulation.faults.changes import AmidChange
from tests.simulation.faults.clients import PauseClient
from tests.simulation.faults.clocks import Jump
from tests.simulation.faults.network import BadNetwork, BreakStreams, Cut, Isolate
from tests.simulation.faults.processes import Kill, KillAtPoint, Pause, PauseAtPoint, PowerCut, Stop, Visit
from tests.simulation.faults.store import (
    CutFromStore,
    FailOver,
    HeldReplies,
    LostReplies,
    Refuse,
    RestartStore,
    Split,
    Unreachable,
)

if TYPE_CHECKING:
    from tests.simulation.world import Shape

_WEIGHTS: Final[dict[type[Fault], int]] = {
    Kill: 8,
    KillAtPoint: 12,
    PowerCut: 4,
    Stop: 8,
    Visit: 6,
    Pause: 8,
    PauseAtPoint: 6,
    PauseClient: 4,
    Jump: 5,
    Cut: 12,
    Isolate: 4,
    BadNetwork: 8,
    BreakStreams: 4,
    CutFromStore: 6,
    LostReplies: 8,
    HeldReplies: 6,
    Unreachable: 4,
    RestartStore: 6,
    Refuse: 6,
}
#: Only for stores with replicas.
_WEIGHTS_OF_REPLICAS: Final[dict[type[Fault], int]] = {FailOver: 16, Split: 10}

#: Every kind by its name in plans; the last has no weight, since it only occurs in runs that change groups (`amid`).
KINDS: Final[dict[str, type[Fault]]] = {kind.__name__: kind for kind in (*_WEIGHTS, *_WEIGHTS_OF_REPLICAS, AmidChange)}
_AMID: Final = (0, 1, 1, 2, 3)


def draw(rng: Random, shape: Shape) -> Fault:
    """Draw a fault that may strike a cluster of this shape."""
    weights = {**_WEIGHTS, **(_WEIGHTS_OF_REPLICAS if shape.replicas else {})}
    return rng.choices(list(weights), list(weights.values()))[0].draw(rng, shape)


def amid(rng: Random, shape: Shape) -> list[Fault]:
    """Draw the faults that strike during changes to groups, for a run that has such changes."""
    return [AmidChange.draw(rng, shape) for _ in range(rng.choice(_AMID))]
