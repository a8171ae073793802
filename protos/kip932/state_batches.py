"""State batches of a share-partition, and how to combine them and their counts (SC-100…SC-112, SC-115, SC-42, CM-17).

The share coordinator, the partition leader, tools and the pipeline all use this module, so that a replayed log means
the same to all of them. Pure; it knows neither epochs nor records.

The rule in one sentence: for each offset at or above the start offset, the batch with the highest (delivery_count,
delivery_state, not_before_ms) wins, whichever came first (SC-104, SC-107, SC-115). So combining is idempotent and does
not depend on the order (SC-111).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

UNSET_OFFSET: Final = -1

# Bits of `WriteStats.cause` (PM-20 X2): a set, because writes are merged (PL-705).
CAUSE_ACK: Final = 1
CAUSE_SESSION_RELEASE: Final = 2
CAUSE_LOCK_EXPIRY: Final = 4
CAUSE_DLQ: Final = 8
CAUSE_ADMIN: Final = 16
CAUSE_INIT: Final = 32
CAUSE_COLD: Final = 64


class StateBatch(NamedTuple):
    """Offsets `first_offset`…`last_offset` (inclusive) with one delivery state and delivery count.

    `not_before_ms`: Available records are not delivered before this time, in ms since 1970; 0 means at once (PL-934).
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
    not_before_ms: int = 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """The batch's rank: where two batches overlap, the one with the higher rank wins (SC-104, SC-115)."""
        return self.delivery_count, self.delivery_state, self.not_before_ms

    def __str__(self) -> str:
        text = f"{self.first_offset}-{self.last_offset}:{self.delivery_state}:{self.delivery_count}"
        return f"{text}@{self.not_before_ms}" if self.not_before_ms else text


#: Values of `ArchivedRange.reason`: why records were archived that no member accepted (PM-20 X9).
ARCHIVED_AT_LIMIT: Final = 1
ARCHIVED_REJECTED: Final = 2


class ArchivedRange(NamedTuple):
    """Offsets `first_offset`…`last_offset` (inclusive) that no member accepted and that a write archives, or keeps as
    Archiving until their dead letters are written (PM-20 X9)."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: int


class WriteStats(NamedTuple):
    """Statistics of one write: the leader fills them, the store keeps them unchanged (PM-20 X2–X5, X8–X10).

    None means unknown, not zero.
    """

    cause: int = 0
    n_accept: int | None = None
    n_release: int | None = None
    n_reject: int | None = None
    n_timeout: int | None = None
    n_limit: int | None = None
    n_given_back: int | None = None
    max_dc: int | None = None
    sum_dc: int | None = None
    hwm: int | None = None
    speo: int | None = None
    write_id: int | None = None
    delivery_limit: int | None = None
    archived: tuple[ArchivedRange, ...] = ()


NO_STATS: Final = WriteStats()
#: A sentinel for the end of a list: a batch above every offset.
_END: Final = StateBatch(1 << 64, 1 << 64, 0, 0)


def combine(current: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int = -1) -> list[StateBatch]:
    """Combine all batches into one sorted list without overlap, cut at `start_offset` (−1: not cut), SC-100…SC-108.

    The inputs may overlap and be in any order. A batch that ends before it begins holds no offset and is dropped.
    Touching batches of equal rank are merged [SC-108 R]. O(n log n).
    """
    batches = prune(current, start_offset)
    batches += prune(new, start_offset)
    batches.sort()
    joined = _joined(batches)
    return _sweep(batches) if joined is None else joined


def merge_into(stored: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int = -1) -> list[StateBatch]:
    """Like `combine`, but for a `stored` list that `combine` returned: only the part that `new` touches is combined
    again.

    O(m log m) for the m batches involved, besides copying the rest. The share coordinator calls it for every write.
    """
    added = _joined(new)
    if added is None or (added and added[0].first_offset < start_offset):
        added = combine((), new, start_offset)
    if not stored or stored[-1].last_offset < start_offset:
        return added
    low = 0
    if stored[0].last_offset < start_offset:
        low = bisect_left(stored, start_offset, key=_last_offset)
    kept = list(stored[low:])
    if kept[0].first_offset < start_offset:
        kept[0] = StateBatch(start_offset, *kept[0][1:])
    if not added:
        return kept
    if kept[-1].last_offset + 1 < added[0].first_offset:
        return kept + added
    begin = bisect_left(kept, added[0].first_offset - 1, key=_last_offset)
    end = bisect_right(kept, added[-1].last_offset + 1, lo=begin, key=_first_offset)
    kept[begin:end] = _merge(kept[begin:end], added) if begin < end else added
    return kept


def prune(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return the batches without their offsets below `start_offset`; −1 keeps all (SC-101)."""
    if start_offset == UNSET_OFFSET:
        return list(batches)
    return [
        batch if batch.first_offset >= start_offset else StateBatch(start_offset, *batch[1:])
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def clip(batches: Sequence[StateBatch], first_offset: int, last_offset: int) -> list[StateBatch]:
    """The part of a combined list from `first_offset` to `last_offset`, both inclusive."""
    begin = bisect_left(batches, first_offset, key=_last_offset)
    end = bisect_right(batches, last_offset, lo=begin, key=_first_offset)
    part = list(batches[begin:end])
    if part:
        if part[0].first_offset < first_offset:
            part[0] = StateBatch(first_offset, *part[0][1:])
        if part[-1].last_offset > last_offset:
            part[-1] = StateBatch(part[-1].first_offset, last_offset, *part[-1][2:])
    return part


def delayed_at(batches: Iterable[StateBatch], wall_ms: int) -> int:
    """The number of offsets whose delay has not ended at `wall_ms`, in ms since 1970 (PL-938)."""
    return sum(last - first + 1 for first, last, _, _, until_ms in batches if until_ms > wall_ms)


def merge_count(stored_start: int, stored_count: int, start_offset: int, count: int) -> int:
    """The delivery-complete count after a write of `start_offset` and `count`.

    A start offset of −1 leaves the stored one unchanged. A count holds only for its own start offset, so a count for a
    lower start offset is ignored (SC-42).
    """
    if start_offset < stored_start:
        return stored_count
    return max(stored_count, count) if start_offset == stored_start else count


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _joined(batches: Sequence[StateBatch]) -> list[StateBatch] | None:
    """Sorted batches, with touching ones of equal rank merged; None if any overlap."""
    out: list[StateBatch] = []
    end, rank = -2, (-1, -1, -1)
    for batch in batches:
        first, last, state, count, until = batch
        if not end < first <= last:
            return None
        if end + 1 == first and rank == (count, state, until):
            out[-1] = StateBatch(out[-1].first_offset, last, state, count, until)
        else:
            out.append(batch)
            rank = (count, state, until)
        end = last
    return out


def _merge(one: Sequence[StateBatch], other: Sequence[StateBatch]) -> list[StateBatch]:
    """Combine two combined lists from left to right, O(n). The batches of a write seldom overlap with stored ones."""
    out: list[StateBatch] = []
    mine, theirs = iter(one), iter(other)
    first, last, state, count, until = next(mine, _END)
    first2, last2, state2, count2, until2 = next(theirs, _END)
    while True:
        if first > first2:  # swap, so that the batch of `mine` begins no later
            mine, theirs = theirs, mine
            first, last, state, count, until, first2, last2, state2, count2, until2 = (
                first2, last2, state2, count2, until2, first, last, state, count, until,
            )  # fmt: skip
        if first == _END.first_offset:
            return out
        if last < first2:
            _emit(out, first, last, state, count, until)
            first, last, state, count, until = next(mine, _END)
        elif count > count2 or (count == count2 and (state, until) >= (state2, until2)):
            if last2 > last:  # `mine` wins: remove its offsets from the other
                first2 = last + 1
            else:
                first2, last2, state2, count2, until2 = next(theirs, _END)
        else:
            if first < first2:
                _emit(out, first, first2 - 1, state, count, until)
            if last > last2:
                first = last2 + 1
            else:
                first, last, state, count, until = next(mine, _END)


def _sweep(batches: Sequence[StateBatch]) -> list[StateBatch]:
    """Combine sorted batches from left to right; a heap holds those that cover the current offset, highest rank on top.

    Each step ends where the top batch ends or the next batch begins, so there are at most 2n steps.
    """
    out: list[StateBatch] = []
    # (-count, -state, -not_before, -last): negative, since heapq returns the smallest first
    open_: list[tuple[int, int, int, int]] = []
    offset = batches[0].first_offset
    index, size = 0, len(batches)
    while index < size or open_:
        if not open_:
            offset = max(offset, batches[index].first_offset)
        while index < size and batches[index].first_offset <= offset:
            _, last, state, count, until = batches[index]
            heappush(open_, (-count, -state, -until, -last))
            index += 1
        count, state, until, last = open_[0]
        if -last < offset:
            heappop(open_)
            continue
        end = -last
        if index < size and batches[index].first_offset <= end:
            end = batches[index].first_offset - 1
        _emit(out, offset, end, -state, -count, -until)
        offset = end + 1
    return out


def _emit(  # noqa: PLR0917 - the fields of a batch
    out: list[StateBatch], first: int, last: int, state: int, count: int, until: int
) -> None:
    if out:
        begin, end, *before = out[-1]
        if end + 1 == first and before == [state, count, until]:
            out[-1] = StateBatch(begin, last, state, count, until)
            return
    out.append(StateBatch(first, last, state, count, until))
