"""Every shape of store, and what is done to it under load. The cells of the table in docs/guarantees.md name these
experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.chaos.stores import plays
from tests.chaos.stores.cells import ROWS
from tests.chaos.stores.cluster import ClusterStore
from tests.chaos.stores.deployment import MakeStore
from tests.chaos.stores.secured import SecuredSentinelStore
from tests.chaos.stores.sentinel import SentinelStore
from tests.chaos.stores.single import SingleServer
from tests.chaos.stores.trial import StoreTrial

Play = Callable[[StoreTrial], None]
#: The name that selects all experiments of all shapes.
ALL: Final = "stores"


@dataclass(frozen=True, slots=True)
class Shape:
    """A store with a durability setting, and the plays for it."""

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
        """The experiment's name, as in `sentinel-1/master_killed`."""
        return f"{self.shape.name}/{self.play.__name__}"

    @property
    def sentence(self) -> str:
        """Describes what is done."""
        return (self.play.__doc__ or "").partition("\n")[0]

    @property
    def shows(self) -> tuple[str, ...]:
        """The rows of docs/guarantees.md that it is about, and the column."""
        return tuple(f"guarantees: {name}" for name, row in ROWS.items() if row.play == self.play.__name__)


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
    Shape("sentinel-secured", SecuredSentinelStore, 2, (plays.master_killed, plays.hand_over, plays.forced_fail_over)),
    Shape("cluster-1", ClusterStore, 1, (*_REPLICATED, plays.slot_moved)),
    Shape("cluster-2", ClusterStore, 2, (*_REPLICATED, plays.slot_moved)),
)


def catalogue() -> Iterator[StoreExperiment]:
    """Yield every experiment, those of one shape together."""
    for shape in SHAPES:
        for play in shape.plays:
            yield StoreExperiment(shape, play)


#: What `python -m tests.chaos` runs by default: the riskiest fail-overs, on every setting that promises to lose
#: nothing, and one in which a tail is lost. Takes about five minutes.
BY_DEFAULT: Final[Mapping[str, tuple[Play, ...]]] = {
    "own-always": (plays.store_killed,),
    "sentinel-1": (plays.lagging_replicas,),
    "sentinel-2": (plays.master_killed, plays.one_lagging_replica),
    "sentinel-3": (
        plays.master_killed,
        plays.lagging_replicas,
        plays.master_cut_off,
        plays.master_hidden,
        plays.forced_fail_over,
    ),
    "sentinel-secured": (plays.master_killed,),
    "cluster-2": (plays.slot_moved, plays.lagging_replicas, plays.master_cut_off, plays.store_lost_and_back),
}


def default() -> list[StoreExperiment]:
    """Return the experiments of `BY_DEFAULT`."""
    return [each for each in catalogue() if each.play in BY_DEFAULT.get(each.shape.name, ())]


def named(name: str) -> list[StoreExperiment]:
    """Return the experiment of this name, those of a shape of this name, or all for `stores`; [] if nothing matches."""
    return [each for each in catalogue() if name in {each.name, each.shape.name, ALL}]


def select(names: Sequence[str]) -> list[StoreExperiment]:
    """Return the named experiments, those of one shape together; all if none is named. Raises ValueError."""
    for name in names:
        if not named(name):
            known = ", ".join(each.name for each in catalogue())
            raise ValueError(f"there is no experiment {name}; there are {known}")
    wanted = {each.name for name in names or [ALL] for each in named(name)}
    return [each for each in catalogue() if each.name in wanted]
