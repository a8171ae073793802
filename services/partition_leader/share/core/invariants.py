"""What holds in a share-partition's window between any two events. `Window.check` lists it and calls these checks.

Owns the checks of batches, of their order, of the hints at Available records and of locks. Never changes anything, and
no decision depends on it: tests and the simulator check after each event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from partition_leader.share.core.batch import NOBODY, InFlightBatch
from partition_leader.share.core.locks import LockEntry
from partition_leader.share.core.transitions import CLOSING_CODES, KNOWN_CODES, PENDING, PENDING_CODES, code_name


class BrokenInvariantError(AssertionError):
    """Memory contradicts itself: the offset, and the sentence that does not hold there."""

    def __init__(self, offset: int, sentence: str) -> None:
        super().__init__(f"offset {offset}: {sentence}")
        self.offset = offset


def check_batch(batch: InFlightBatch) -> None:
    """One batch by itself. Raises BrokenInvariantError."""
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
    """PL-002, PL-102 (columns dc, member_id and lock timer)."""
    if code not in KNOWN_CODES:
        raise BrokenInvariantError(offset, f"it is {code_name(code)}")
    is_held = code == STATE_ACQUIRED or bool(code & PENDING)
    if count < is_held:
        raise BrokenInvariantError(offset, f"it is {code_name(code)}, yet its delivery count is {count}")
    if is_held != (member != NOBODY):
        raise BrokenInvariantError(offset, f"it is {code_name(code)}, yet its owner is {member or 'nobody'}")
    if not is_held and deadline:
        raise BrokenInvariantError(offset, f"it is {code_name(code)}, yet its lock ends at {deadline}")


def _check_counter(first: int, name: str, counted: int, found: int) -> None:
    if counted != found:
        raise BrokenInvariantError(first, f"its batch counts {counted} {name} records, and has {found}")


def check_order(batches: Sequence[InFlightBatch], firsts: Sequence[int], start_offset: int) -> None:
    """PL-004: ascending and disjoint, found under their first offsets, none wholly below the start offset."""
    if list(firsts) != [batch.first for batch in batches]:
        raise BrokenInvariantError(start_offset, f"the batches are looked up under other first offsets: {firsts}")
    for left, right in pairwise(batches):
        if right.first <= left.last:
            raise BrokenInvariantError(right.first, f"two batches overlap: {left.first}-{left.last} reaches it")
    if batches and batches[0].last < start_offset:
        raise BrokenInvariantError(batches[0].first, f"its batch lies below the start offset {start_offset}")


def check_hints(batches: Iterable[InFlightBatch], hints: Sequence[int]) -> None:
    """Every batch with Available records is found by the walk over the hints, which ascend (PL-202)."""
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
    """PL-303: no lock is over, and a lock entry ends each. A pending record needs its entry as long as its lock runs,
    for a roll-back gives the lock back (PL-307, PL-414)."""
    ends: dict[int, list[tuple[int, int]]] = {}
    for deadline, first, last in sorted(entries):
        ends.setdefault(deadline, []).append((first, last))
    for batch in batches:
        if batch.codes is not None and not (batch.pending or STATE_ACQUIRED in batch.codes):
            continue
        for first, last, code, _, _, deadline in batch.lock_runs(batch.first, batch.last):
            is_acquired = code == STATE_ACQUIRED
            if is_acquired and deadline <= now_ms:
                raise BrokenInvariantError(first, f"it is Acquired, yet its lock ended at {deadline} (now {now_ms})")
            if is_acquired or (code & PENDING and deadline > now_ms):
                _check_covered(first, last, ends.get(deadline, ()), deadline)


def _check_covered(first: int, last: int, spans: Iterable[tuple[int, int]], deadline: int) -> None:
    for low, high in spans:
        if low <= first <= high:
            first = high + 1
    if first <= last:
        raise BrokenInvariantError(first, f"its lock ends at {deadline}, and no lock entry does")
