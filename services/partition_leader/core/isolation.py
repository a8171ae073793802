"""Handing out Available records of one batch, fewer at a time the more often they have failed (PL-240 … PL-242).

Owns the subset path of an acquire pass and the throttling of batches that look poisoned. Work is per run of equal
records as long as nothing in the batch has failed often.
"""

from __future__ import annotations

from typing import NamedTuple

from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from partition_leader.core.batch import InFlightBatch
from partition_leader.core.effects import AcquiredRange
from partition_leader.core.in_flight import Window
from partition_leader.core.transitions import ACQUIRE


class Pass(NamedTuple):
    """What holds for the whole acquire pass: the member, its lock end (ms), the read range, the delivery limit."""

    member: str
    deadline: int
    first_read: int
    last_acquirable: int
    limit: int

    @property
    def throttle_at(self) -> int:
        """The delivery count from which a batch is handed out in parts (PL-241)."""
        return max(2, (self.limit + 1) // 2)


def is_throttled(batch: InFlightBatch, now: Pass) -> bool:
    """Whether some Available record of the batch inside the read has failed often (PL-241)."""
    throttle_at = now.throttle_at
    if batch.max_count < throttle_at or not batch.available:
        return False
    low, high = max(batch.first, now.first_read), min(batch.last, now.last_acquirable)
    return any(code == STATE_AVAILABLE and count >= throttle_at for _, _, code, count in batch.runs(low, high))


def acquire_subset(window: Window, batch: InFlightBatch, now: Pass, cap: int | None) -> list[AcquiredRange]:
    """PL-240: acquire Available records of the batch that lie in the read, at most `cap` of them (None: as many as
    isolation allows; record-limit mode gives its remaining cap)."""
    low, high = max(batch.first, now.first_read), min(batch.last, now.last_acquirable)
    if low > high or not batch.available:
        return []
    codes = batch.track()
    if batch.max_count >= min(now.throttle_at, now.limit - 1 if now.limit > 2 else now.throttle_at):
        return _acquire_isolated(window, batch, now, cap, (low, high))
    result: list[AcquiredRange] = []
    taken = 0
    at, end = low - batch.first, high - batch.first + 1
    while cap is None or taken < cap:
        at = codes.find(STATE_AVAILABLE, at, end)
        if at < 0:
            break
        count = batch.counts[at]
        stop = at + 1
        bound = end if cap is None else min(end, at + cap - taken)
        while stop < bound and codes[stop] == STATE_AVAILABLE and batch.counts[stop] == count:
            stop += 1
        _append(result, batch.first + at, batch.first + stop - 1, count + 1)
        taken += stop - at
        at = stop
    _take(window, batch, now, result)
    return result


def _acquire_isolated(
    window: Window, batch: InFlightBatch, now: Pass, cap: int | None, bounds: tuple[int, int]
) -> list[AcquiredRange]:
    """Record by record: the last delivery alone, the ones before in halving parts (PL-240 a…d)."""
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


def _take(window: Window, batch: InFlightBatch, now: Pass, ranges: list[AcquiredRange]) -> None:
    """T3 for each range: Acquired, counted, owned; one lock entry per range (PL-302)."""
    for first, last, count in ranges:
        if first == last and batch.codes is not None:  # single records are many: skip the slices
            at = first - batch.first
            batch.codes[at] = STATE_ACQUIRED
            batch.available -= 1
            batch.counts[at] = count
            batch.members[at] = now.member
            batch.deadlines[at] = now.deadline
            batch.max_count = max(batch.max_count, count)
        else:
            window.recode(batch, first, last, ACQUIRE)
            batch.set_counts(first, last, count)
            batch.hold(first, last, now.member, now.deadline)
    if ranges:
        window.lock(ranges[0][0], ranges[-1][1], now.deadline)


def _append(ranges: list[AcquiredRange], first: int, last: int, count: int) -> None:
    if ranges and ranges[-1][1] + 1 == first and ranges[-1][2] == count:
        ranges[-1] = AcquiredRange(ranges[-1][0], last, count)
    else:
        ranges.append(AcquiredRange(first, last, count))
