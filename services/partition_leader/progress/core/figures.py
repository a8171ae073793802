"""The figures of share-partitions, and their sums over partitions (PL-950, PL-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Final, NamedTuple

from partition_leader.share_partition.core.finished import NONE_FINISHED, Finished

ALL_PARTITIONS: Final = -1


class Held(NamedTuple):
    """The member that has held a record for longest, and for how long (ms)."""

    member: str
    ms: int


NOT_HELD: Final = Held("", 0)


class Recent(NamedTuple):
    """What happened within the last `ms`; 0 if nothing is known of any time before now."""

    ms: int = 0
    finished: int = 0
    arrived: int = 0


NOT_RECENT: Final = Recent()


class Figures(NamedTuple):
    """The progress of one share-partition, or the sum over `partitions` of them.

    None: unknown (of some partition, for the lag); also, for `oldest_ms`, that no record is unfinished, and for
    `since_finish_ms`, that none was finished since this leader counts.
    """

    partitions: int = 1
    lag: int | None = None
    oldest_ms: int | None = None
    in_flight: int = 0
    delayed: int = 0
    dead_letters: int = 0
    finished: Finished = NONE_FINISHED
    arrived: int = 0
    recent: Recent = NOT_RECENT
    since_finish_ms: int | None = None
    longest: Held = NOT_HELD
    fetching: int = 0


class Row(NamedTuple):
    """The figures of a group in a topic: in one partition, or in all that are led here (ALL_PARTITIONS)."""

    group_id: str
    topic_id: bytes
    partition: int
    figures: Figures


def unfinished(high_watermark: int, start_offset: int, complete: int, holes: int) -> int:
    """Return the lag of GC-115: the offsets from `start_offset` on, without the finished ones, or without those known
    to have no record if they are more."""
    return max(0, high_watermark - start_offset - max(complete, holes))


def plus(left: Figures, right: Figures) -> Figures:
    """Return the sum of two. `fetching` is that of both together only if no session fetches from both."""
    lag = None if left.lag is None or right.lag is None else left.lag + right.lag
    recent = Recent(
        max(left.recent.ms, right.recent.ms),
        left.recent.finished + right.recent.finished,
        left.recent.arrived + right.recent.arrived,
    )
    return Figures(
        left.partitions + right.partitions,
        lag,
        _either(max, left.oldest_ms, right.oldest_ms),
        left.in_flight + right.in_flight,
        left.delayed + right.delayed,
        left.dead_letters + right.dead_letters,
        left.finished.plus(right.finished),
        left.arrived + right.arrived,
        recent,
        _either(min, left.since_finish_ms, right.since_finish_ms),
        left.longest if left.longest.ms >= right.longest.ms and left.longest.member else right.longest,
        left.fetching + right.fetching,
    )


def _either(choose: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


def largest_first(rows: Iterable[Row], limit: int) -> list[Row]:
    """Return the `limit` rows with the largest lag, the largest first; those with an unknown lag come last."""
    return nlargest(limit, rows, key=lambda row: -1 if row.figures.lag is None else row.figures.lag)
