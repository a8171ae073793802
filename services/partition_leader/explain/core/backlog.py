"""Counts a group's backlog in a share-partition, the records held and waiting, from the window (PL-827).

It changes nothing. Its cost grows with the cached batches, and a little with their records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.core.transitions import PENDING_CODES


class Backlog(NamedTuple):
    """`held`: records that are acquired, or whose acknowledgement or release is being written. `waiting`: records that
    are Available or not fetched yet. `start_offset`: everything before it is finished. `delayed`: records whose delay
    has not ended (PL-938)."""

    held: int
    waiting: int
    start_offset: int
    delayed: int


def backlog(
    partition: SharePartition, high_watermark: int, holes_from: Callable[[int], int], empty_from: Callable[[int], int]
) -> Backlog | None:
    """Count the backlog (PL-827); None while the share-partition is not ACTIVE.

    `holes_from`: returns how many offsets from a given one to the high watermark are known to have no record (CM-105).
    `empty_from`: returns how many offsets of that range currently hold nothing for the group, including those holes.
    """
    if partition.status is not Status.ACTIVE:
        return None
    window = partition.state.window
    waiting = _counted(window, _AVAILABLE) + _uncovered_by_state(window, holes_from)
    beyond = window.next_offset
    if beyond < high_watermark:
        waiting += max(0, high_watermark - beyond - empty_from(beyond))
    return Backlog(held_records(window), waiting, window.start_offset, window.delayed)


def held_records(window: Window) -> int:
    """Count the records that members hold, those with a pending write included."""
    return _counted(window, _HELD)


def _counted(window: Window, wanted: bytes) -> int:
    return sum(_count(batch, max(batch.first, window.start_offset), wanted) for batch in window.walk())


def _count(batch: InFlightBatch, first: int, wanted: bytes) -> int:
    if batch.codes is None:
        return batch.last - first + 1 if batch.code in wanted else 0
    codes = batch.codes[first - batch.first :] if first > batch.first else batch.codes
    return sum(codes.count(code) for code in wanted)


def _uncovered_by_state(window: Window, holes_from: Callable[[int], int]) -> int:
    """Count the offsets that the stored state does not cover (PL-606); they are delivered if the log has them."""
    gap = window.open_gap
    if gap is None:
        return 0
    low, end = gap[0], gap[1] + 1
    cached = sum(batch.last - max(batch.first, low) + 1 for batch in window.overlapping(low, gap[1]))
    return max(0, end - low - cached - (holes_from(low) - holes_from(end)))


_AVAILABLE = bytes([STATE_AVAILABLE])
_HELD = bytes([STATE_ACQUIRED]) + PENDING_CODES
