"""The invariants of a share-partition's window between any two events; `check_window` lists them.

Owns the checks of batches, of their order, of the hints to Available records, and of locks. Never changes anything, and
no decision depends on it: tests and the simulator run it after each event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Protocol

from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.locks import LockEntry, LockHeap
from partition_leader.share_partition.core.transitions import (
    CLOSING_CODES,
    DELAYED,
    KNOWN_CODES,
    PENDING,
    PENDING_AVAILABLE,
    PENDING_CODES,
    PENDING_DELAYED,
    TERMINAL_CODES,
    code_name,
)
from partition_leader.share_partition.core.undelivered import Undelivered

_FREE_AGAIN: Final = (PENDING_AVAILABLE, PENDING_DELAYED)


class BrokenInvariantError(AssertionError):
    """Memory contradicts itself; the message names the offset and the invariant that is broken there."""

    def __init__(self, offset: int, sentence: str) -> None:
        super().__init__(f"offset {offset}: {sentence}")
        self.offset = offset


class CheckedWindow(Protocol):
    """The part of a window that is checked."""

    start_offset: int
    end_offset: int
    closing: int
    counting: int
    counts_records: bool
    delayed: int
    locks: LockHeap
    undelivered: Undelivered

    @property
    def front_code(self) -> int:
        """The code of the first record that is not below the start offset."""
        ...

    @property
    def front_offset(self) -> int:
        """The first cached offset."""
        ...

    @property
    def open_gap(self) -> tuple[int, int] | None:
        """The gap window while it is active."""
        ...

    def overlapping(self, first: int, last: int) -> Iterable[InFlightBatch]:
        """Cached batches with an offset in `first`…`last`."""
        ...


def check_window(
    window: CheckedWindow,
    batches: Sequence[InFlightBatch],
    firsts: Sequence[int],
    hints: Sequence[int],
    now_ms: int | None,
) -> None:
    """Raise BrokenInvariantError with the offset and the broken invariant. `now_ms`: the time of the last event, given
    only for an ACTIVE share-partition: in any other status it has no timers, and its start offset does not advance.

    - Each batch is well formed (`check_batch`): one code, count, owner and lock end for each offset; known codes; an
      owner if and only if Acquired or pending; an end of its delay if Delayed; counters that match its codes.
    - Batches ascend, do not overlap, and none is wholly below the start offset (PL-004).
    - The window's counters are the sums of what the batches count (PL-125, PL-935).
    - No record's delivery was taken back more often in a row than allowed, and no more records than allowed are
      remembered for that (PL-941).
    - The start offset is not above the end; the end is the last cached offset, when there is one (PL-005).
    - The next unresolved hole is not below the start offset, and no batch covers it (PL-606, PL-607).
    - Every batch with Available records has a hint (PL-202).
    - ACTIVE: every lock and delay ends in the future and has its entry (PL-303, PL-932); the first record is not
      finished (PL-120).
    """
    start = window.start_offset
    check_order(batches, firsts, start)
    for batch in batches:
        check_batch(batch)
    for name in ("closing", "counting", "delayed") if window.counts_records else ("closing",):
        counted, found = getattr(window, name), sum(getattr(batch, name) for batch in batches)
        if counted != found:
            raise BrokenInvariantError(start, f"{counted} {name} records are counted, {found} in its batches")
    times, at = window.undelivered.most()
    if times > window.undelivered.in_a_row_max:
        raise BrokenInvariantError(at, f"its delivery was taken back {times} times in a row")
    if len(window.undelivered) > window.undelivered.records_max:
        raise BrokenInvariantError(start, f"{len(window.undelivered)} records taken back are remembered")
    if window.end_offset < start:
        raise BrokenInvariantError(start, f"the start offset is above the end offset {window.end_offset}")
    if batches and window.end_offset != batches[-1].last:
        raise BrokenInvariantError(batches[-1].last, f"it is the last one cached, but the end is {window.end_offset}")
    gap = window.open_gap
    if gap is not None and (gap[0] < start or any(True for _ in window.overlapping(gap[0], gap[0]))):
        raise BrokenInvariantError(gap[0], f"it counts as a hole, yet is cached or below start offset {start}")
    check_hints(batches, hints)
    if now_ms is None:
        return
    check_locks(batches, window.locks.entries(), now_ms)
    if batches and window.front_code in (*TERMINAL_CODES, -1) and (gap is None or batches[0].last < gap[0]):
        raise BrokenInvariantError(max(start, window.front_offset), "it is finished, yet the start offset stays at it")


def check_batch(batch: InFlightBatch) -> None:
    """Check one batch by itself. Raises BrokenInvariantError."""
    first, size = batch.first, len(batch)
    if size <= 0:
        raise BrokenInvariantError(first, f"the batch ends at {batch.last}, before it begins")
    if batch.codes is None:
        codes, counts = bytes([batch.code]), [batch.count]
        held = [(batch.member, batch.deadline)]
        times = size
    else:
        lengths = (len(batch.codes), len(batch.counts), len(batch.members), len(batch.deadlines))
        if lengths != (size,) * 4:
            raise BrokenInvariantError(
                first, f"the batch has {size} offsets, but {lengths} codes, counts, members and lock ends"
            )
        codes, counts = bytes(batch.codes), list(batch.counts)
        held = list(zip(batch.members, batch.deadlines, strict=True))
        times = 1
    for offset, code, count, (member, deadline) in zip(range(first, batch.last + 1), codes, counts, held, strict=False):
        _check_record(offset, code, count, member, deadline)
        if count > batch.max_count:
            raise BrokenInvariantError(offset, f"delivery count {count}, but at most {batch.max_count} in its batch")
    _check_counter(first, "Available", batch.available, times * codes.count(STATE_AVAILABLE))
    _check_counter(first, "terminal", batch.closing, times * sum(map(codes.count, CLOSING_CODES)))
    _check_counter(first, "pending", batch.pending, times * sum(map(codes.count, PENDING_CODES)))


def _check_record(offset: int, code: int, count: int, member: str, deadline: int) -> None:
    """Check one record against PL-002 and PL-102 (columns dc, member_id and lock timer)."""
    if code not in KNOWN_CODES:
        raise BrokenInvariantError(offset, f"it is {code_name(code)}")
    is_held = code == STATE_ACQUIRED or bool(code & PENDING)
    if count < is_held and code not in _FREE_AGAIN:  # a first delivery may be taken back (PL-941)
        raise BrokenInvariantError(offset, f"it is {code_name(code)}, yet its delivery count is {count}")
    if is_held != (member != NO_MEMBER):
        raise BrokenInvariantError(offset, f"it is {code_name(code)}, yet its owner is {member or 'no member'}")
    if code == DELAYED and not deadline:
        raise BrokenInvariantError(offset, "it is Delayed, yet its delay has no end")
    if not is_held and deadline and code != DELAYED:
        raise BrokenInvariantError(offset, f"it is {code_name(code)}, yet its lock ends at {deadline}")


def _check_counter(first: int, name: str, counted: int, found: int) -> None:
    if counted != found:
        raise BrokenInvariantError(first, f"its batch counts {counted} {name} records, and has {found}")


def check_order(batches: Sequence[InFlightBatch], firsts: Sequence[int], start_offset: int) -> None:
    """Check that batches ascend, are disjoint and are indexed by their first offsets, and that none is wholly below the
    start offset (PL-004)."""
    if list(firsts) != [batch.first for batch in batches]:
        raise BrokenInvariantError(start_offset, f"the batches are looked up under other first offsets: {firsts}")
    for left, right in pairwise(batches):
        if right.first <= left.last:
            raise BrokenInvariantError(right.first, f"two batches overlap: {left.first}-{left.last} reaches it")
    if batches and batches[0].last < start_offset:
        raise BrokenInvariantError(batches[0].first, f"its batch is below the start offset {start_offset}")


def check_hints(batches: Iterable[InFlightBatch], hints: Sequence[int]) -> None:
    """Check that the hints ascend, and that they include every batch with Available records (PL-202)."""
    for left, right in pairwise(hints):
        if right <= left:
            raise BrokenInvariantError(right, f"the hints at Available records do not ascend: {left} is before it")
    known = set(hints)
    for batch in batches:
        if batch.available and not batch.hinted:
            raise BrokenInvariantError(batch.first, f"{batch.available} Available records, and no hint at their batch")
        if batch.hinted and batch.first not in known:
            raise BrokenInvariantError(batch.first, "its batch counts as hinted, and no hint is there")


def check_locks(batches: Iterable[InFlightBatch], entries: Iterable[LockEntry], now_ms: int) -> None:
    """Check that no lock is past its deadline, and that each acquired record has a lock entry (PL-303). A pending
    record needs its entry until its lock ends, because a roll-back restores the lock (PL-307, PL-414)."""
    ends: dict[int, list[tuple[int, int]]] = {}
    for deadline, first, last in sorted(entries):
        ends.setdefault(deadline, []).append((first, last))
    for batch in batches:
        if batch.codes is not None and not (batch.pending or batch.delayed or STATE_ACQUIRED in batch.codes):
            continue
        for first, last, code, _, _, deadline in batch.lock_runs(batch.first, batch.last):
            is_timed = code in (STATE_ACQUIRED, DELAYED)
            if is_timed and deadline <= now_ms:
                what = "Delayed, yet its delay" if code == DELAYED else "Acquired, yet its lock"
                raise BrokenInvariantError(first, f"it is {what} ended at {deadline} (now {now_ms})")
            if is_timed or (code & PENDING and deadline > now_ms):
                _check_covered(first, last, ends.get(deadline, ()), deadline)


def _check_covered(first: int, last: int, spans: Iterable[tuple[int, int]], deadline: int) -> None:
    for low, high in spans:
        if low <= first <= high:
            first = high + 1
    if first <= last:
        raise BrokenInvariantError(first, f"its lock ends at {deadline}, but no lock entry does")
