"""Every shape of store, and what is done to it under load. Cells of docs/guarantees.md name these experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.chaos.stores import plays
from tests.chaos.stores.cluster import ClusterStore
from tests.chaos.stores.deployment import MakeStore
from tests.chaos.stores.sentinel import SentinelStore
from tests.chaos.stores.single import SingleServer
from tests.chaos.stores.trial import StoreTrial

Play = Callable[[StoreTrial], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """A store with a durability setting, and what is done to it."""

    name: str
    make_store: MakeStore
    min_insync_replicas: int
    plays: tuple[Play, ...]


@dataclass(frozen=True, slots=True)
class StoreExperiment:
    """One play on one shape."""

    shape: Shape
    play: Play

    @property
    def name(self) -> str:
        """As in `sentinel-1/master_killed`."""
        return f"{self.shape.name}/{self.play.__name__}"


_ALONE: Final = (plays.services_die, plays.store_killed, plays.store_restarted)
_REPLICATED: Final = (
    plays.services_die,
    plays.store_restarted,
    plays.master_killed,
    plays.lagging_replicas,
    plays.master_cut_off,
    plays.master_hidden,
    plays.hand_over,
    plays.replica_lost,
    plays.store_lost_and_back,
)

_SENTINEL: Final = (*_REPLICATED, plays.forced_fail_over)

SHAPES: Final = (
    Shape("own-always", partial(SingleServer, fsync="always"), 1, _ALONE),
    Shape("own-everysec", partial(SingleServer, fsync="everysec"), 1, _ALONE),
    Shape("own-no", partial(SingleServer, fsync="no"), 1, (plays.store_restarted,)),
    Shape("sentinel-1", SentinelStore, 1, _SENTINEL),
    Shape("sentinel-2", SentinelStore, 2, (*_SENTINEL, plays.one_lagging_replica)),
    Shape("sentinel-3", SentinelStore, 3, (*_SENTINEL, plays.one_lagging_replica)),
    Shape("cluster-1", ClusterStore, 1, (*_REPLICATED, plays.slot_moved)),
    Shape("cluster-2", ClusterStore, 2, (*_REPLICATED, plays.slot_moved)),
)


def catalogue() -> Iterator[StoreExperiment]:
    """Every experiment, those of one shape together."""
    for shape in SHAPES:
        for play in shape.plays:
            yield StoreExperiment(shape, play)


def select(names: Sequence[str]) -> list[StoreExperiment]:
    """The experiments with these names, or of shapes with these names; all when none is given. Raises ValueError."""
    known = list(catalogue())
    for name in names:
        if not any(name in {experiment.name, experiment.shape.name} for experiment in known):
            raise ValueError(f"there is no experiment {name}; there are {', '.join(each.name for each in known)}")
    return [each for each in known if not names or {each.name, each.shape.name} & set(names)]
