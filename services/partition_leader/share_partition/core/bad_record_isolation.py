"""Acquires Available records of one batch, fewer at a time the more often they have failed (PL-240 … PL-242).

Owns the subset path of an acquire pass, and the throttling of batches that may contain bad records. The work is per run
of equal records, unless something in the batch has failed often.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.effects import AcquiredRange
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.transitions import ACQUIRE


class AcquisitionPass(NamedTuple):
    """The values of one acquire pass: the member, its lock end (ms), the read range, the delivery limit."""

    member: str
    deadline: int
    first_read: int
    last_acquirable: int
    limit: int

    @property
    def throttle_at(self) -> int:
        """The delivery count from which a batch is acquired in parts (PL-241)."""
        return throttle_at(self.limit)


def throttle_at(limit: int) -> int:
    """The delivery count from which a batch is acquired in parts, given this delivery count limit (PL-241)."""
    return max(2, (limit + 1) // 2)


def holds_throttled(ranges: Iterable[AcquiredRange], limit: int) -> bool:
    """Return whether some of these records had failed often before they were acquired (PL-241)."""
    most = throttle_at(limit)
    return any(count > most for _, _, count in ranges)


def is_throttled(batch: InFlightBatch, now: AcquisitionPass) -> bool:
    """Return whether some Available record of the batch inside the read has failed often (PL-241)."""
    least = now.throttle_at
    if batch.max_count < least or not batch.available:
        return False
    low, high = max(batch.first, now.first_read), min(batch.last, now.last_acquirable)
    return any(code == STATE_AVAILABLE and count >= least for _, _, code, count in batch.runs(low, high))


def acquire_subset(window: Window, batch: InFlightBatch, now: AcquisitionPass, cap: int | None) -> list[AcquiredRange]:
    """Acquire Available records of the batch inside the read (PL-240), at most `cap`. Record-limit mode passes its
    remaining cap; None leaves only the limit set by isolation."""
    low, high = max(batch.first, now.first_read), min(batch.last, now.last_acquirable)
    if low > high or not batch.available:
        return []
    if batch.max_count >= now.throttle_at:  # if the limit is above 2, a last delivery is never below this
        return _acquire_isolated(window, batch, now, cap, (low, high))
    if cap is None:
        result = [
            _new_range(AcquiredRange, (first, last, count + 1))
            for first, last, _, count in batch.available_runs(low, high)
        ]
    else:
        result = _first_available(batch, cap, (low, high))
    _take(window, batch, now, result)
    return result


def _first_available(batch: InFlightBatch, cap: int, bounds: Span) -> list[AcquiredRange]:
    """Return the first `cap` Available records within `bounds`; search no further."""
    low, high = bounds
    codes, counts = batch.track(), batch.counts
    result: list[AcquiredRange] = []
    taken = 0
    at, end = low - batch.first, high - batch.first + 1
    while taken < cap:
        at = codes.find(STATE_AVAILABLE, at, end)
        if at < 0:
            break
        count = counts[at]
        stop = at + 1
        bound = min(end, at + cap - taken)
        while stop < bound and codes[stop] == STATE_AVAILABLE and counts[stop] == count:
            stop += 1
        result.append(AcquiredRange(batch.first + at, batch.first + stop - 1, count + 1))
        taken += stop - at
        at = stop
    return result


def _acquire_isolated(
    window: Window, batch: InFlightBatch, now: AcquisitionPass, cap: int | None, bounds: tuple[int, int]
) -> list[AcquiredRange]:
    """Acquire record by record: the last delivery alone, earlier ones in parts that halve each time (PL-240 a…d)."""
    result: list[AcquiredRange] = []
    taken = 0
    quota: int | None = None
    limit = now.limit
    low, high = bounds
    codes = batch.track()
    for offset in range(low, high + 1):
        at = offset - batch.first
        if codes[at] != STATE_AVAILABLE:
            continue
        count = batch.counts[at]
        if limit > 2 and count == limit - 1 and taken:
            break
        if quota is None and count >= now.throttle_at:
            quota = max(1, len(batch) >> (count - now.throttle_at + 1))
        _append(result, offset, offset, count + 1)
        taken += 1
        if (limit > 2 and count + 1 == limit) or taken in (cap, quota):
            break
    _take(window, batch, now, result)
    return result


def _take(window: Window, batch: InFlightBatch, now: AcquisitionPass, ranges: list[AcquiredRange]) -> None:
    """Acquire each range, whose records the caller knows to be Available (T3): set code, count, owner and lock end, and
    push one lock entry for all of them (PL-302)."""
    codes, counts, members, deadlines = batch.track(), batch.counts, batch.members, batch.deadlines
    member, deadline = now.member, now.deadline
    singles = 0
    for first, last, count in ranges:
        if first == last:  # single records are common: skip the slices
            at = first - batch.first
            codes[at] = STATE_ACQUIRED
            counts[at] = count
            members[at] = member
            deadlines[at] = deadline
            singles += 1
        else:
            window.recode(batch, first, last, ACQUIRE)
            batch.set_counts(first, last, count)
            batch.hold(first, last, member, deadline)
    batch.available -= singles
    if ranges:
        batch.max_count = max(batch.max_count, *map(_COUNT, ranges))
        window.lock(ranges[0][0], ranges[-1][1], now.deadline)


def _append(ranges: list[AcquiredRange], first: int, last: int, count: int) -> None:
    if ranges and ranges[-1][1] + 1 == first and ranges[-1][2] == count:
        ranges[-1] = AcquiredRange(ranges[-1][0], last, count)
    else:
        ranges.append(AcquiredRange(first, last, count))


_COUNT: Final = itemgetter(2)  # of an acquired range
_new_range = tuple.__new__  # builds an AcquiredRange from a tuple of its fields, the fast way
