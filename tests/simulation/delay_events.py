"""Events about delays and clocks: what leaders were requested to do, what they read, and what their clocks showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.history import Event, Share


class BackoffSeen(NamedTuple):
    """A group's back-off as a leader sees it (PL-936), limited by its maximum delay; `initial_ms` 0: none."""

    initial_ms: int = 0
    multiplier: float = 1.0
    max_ms: int = 0
    jitter: float = 0.0

    def most_ms(self, delivery_count: int) -> int:
        """Return the longest delay after this many deliveries."""
        return round(min(self.initial_ms * self.multiplier ** (delivery_count - 1), self.max_ms))

    def least_ms(self, delivery_count: int) -> int:
        """Return the shortest delay that the jitter allows, rounded down to whole milliseconds."""
        return int(self.most_ms(delivery_count) * (1 - self.jitter))


#: First and last offset, acknowledge types, delays of releases (PL-930), as requested.
ReleaseSeen = tuple[int, int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ClockSet(Event):
    """From now on the wall clock of this process is ahead of the run's time by `ahead_ms`; negative if it is behind."""

    ahead_ms: int


@dataclass(frozen=True, slots=True)
class RetriesSeen(Event):
    """A partition leader sees a different back-off or maximum delay for a group than before."""

    incarnation: int
    group_id: str
    backoff: BackoffSeen
    delay_max_ms: int


@dataclass(frozen=True, slots=True)
class TakeBackAsked(Event):
    """A share-partition object starts to process releases that take their deliveries back (PL-941)."""

    incarnation: int
    share: Share
    member_id: str
    object_id: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ReleaseAsked(Event):
    """A share-partition object starts to process acknowledgements, some of which may delay records."""

    incarnation: int
    request: int
    share: Share
    state_epoch: int
    member_id: str
    object_id: int
    batches: tuple[ReleaseSeen, ...]
    backoff: BackoffSeen


@dataclass(frozen=True, slots=True)
class StateLoaded(Event):
    """A share-partition object has read its stored state, either initially or to resolve a write of unknown outcome.

    `ahead_ms`: how far its wall clock is ahead of the run's time. `delay_max_ms`: the group's maximum delay.
    """

    incarnation: int
    share: Share
    object_id: int
    leader_epoch: int
    generation: int
    ahead_ms: int
    delay_max_ms: int
