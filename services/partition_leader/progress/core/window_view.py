"""Reads from a loaded share-partition how far its group is, and who holds its records (PL-950, PL-953).

It changes nothing. Its cost grows with the batches of the window, and only at C speed with their records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kip932.ids import STATE_ACQUIRED
from partition_leader.progress.core.figures import NOT_HELD, Held, unfinished
from partition_leader.share_partition.core.advance import committed
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.core.transitions import PENDING_CODES

#: How many held records of a share-partition are watched: the first of each of its first batches that has one. A
#: record that is held for long is soon among them, as the records before it are finished meanwhile.
WATCHED_MAX: Final = 16
_HELD: Final = bytes([STATE_ACQUIRED]) + PENDING_CODES


class Holding(NamedTuple):
    """The time (ms) since which a member has held a record, in its delivery of this number."""

    member: str
    delivery: int
    since_ms: int


#: The holders of watched records, by offset.
Watched = Mapping[int, Holding]
UNWATCHED: Final[Watched] = MappingProxyType({})


class Moment(NamedTuple):
    """What a view needs of the moment at which it is made. `holes_from`: returns how many offsets from a given one to
    the high watermark are known to have no record (CM-105). `lock_ms`: how long locks of the group last."""

    now_ms: int
    high_watermark: int
    holes_from: Callable[[int], int]
    lock_ms: int


class WindowView(NamedTuple):
    """What the window shows. `watched`: to be passed to the next view of the same object."""

    start_offset: int
    complete: int
    lag: int
    in_flight: int
    delayed: int
    longest: Held
    watched: Watched


def view(core: SharePartition, moment: Moment, watched: Watched = UNWATCHED) -> WindowView | None:
    """Return what the window shows; None while the share-partition is not ACTIVE."""
    if core.status is not Status.ACTIVE:
        return None
    window = core.state.window
    start, complete = committed(window)
    in_flight, holders = _held(window, moment, watched)
    longest = NOT_HELD
    for holding in holders.values():
        held_ms = moment.now_ms - holding.since_ms
        if not longest.member or held_ms > longest.ms:
            longest = Held(holding.member, held_ms)
    lag = unfinished(moment.high_watermark, start, complete, moment.holes_from(start))
    return WindowView(start, complete, lag, in_flight, window.delayed, longest, holders)


def _held(window: Window, moment: Moment, watched: Watched) -> tuple[int, Watched]:
    """Count the records that members hold, those with a pending write included, and watch the first ones."""
    held, holders = 0, dict[int, Holding]()
    for batch in window.walk():
        if batch.codes is None:
            if batch.code not in _HELD:
                continue
            first = max(batch.first, window.start_offset)
            held += batch.last - first + 1
            found = first if batch.code == STATE_ACQUIRED else -1
        else:
            low = max(window.start_offset - batch.first, 0)
            codes = batch.codes[low:] if low else batch.codes
            records = len(codes) - len(codes.translate(None, _HELD))
            if not records:
                continue
            held += records
            at = codes.find(STATE_ACQUIRED)
            found = -1 if at < 0 else batch.first + low + at
        if found >= 0 and len(holders) < WATCHED_MAX:
            holders[found] = _holding(batch, found, moment, watched)
    return held, holders or UNWATCHED


def _holding(batch: InFlightBatch, offset: int, moment: Moment, watched: Watched) -> Holding:
    """Return who holds a record, and since when: for a member that is seen with it for the first time, since the
    present lock began."""
    _, delivery, member, deadline_ms = batch.lock_at(offset)
    known = watched.get(offset)
    if known is not None and known.member == member and known.delivery == delivery:
        return known
    return Holding(member, delivery, min(deadline_ms - moment.lock_ms, moment.now_ms))
