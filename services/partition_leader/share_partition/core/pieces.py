"""Merges the settled (finished, Archiving or delayed) records of a window into few batches (PL-915, PL-935).

A fetched batch keeps arrays with an element for each of its offsets. In a window that is wide because old records are
delayed, such arrays would waste memory on records that need no further work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kip932.ids import BATCH_RECORDS_MAX
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.spans import append_merged
from partition_leader.share_partition.core.transitions import STATE_MASK


def pieces_of(batches: Iterable[InFlightBatch], floor: int) -> list[InFlightBatch]:
    """Return the offsets from `floor` on as one batch, held by no member, for each stretch with the same code, delivery
    count and end of the delay; none is larger than a record batch may be (CM-112). A batch that already is such a piece
    stays the same object."""
    pieces: list[InFlightBatch] = []
    for batch in batches:
        if batch.codes is None and batch.member == NO_MEMBER and batch.first >= floor:
            rank = batch.code, batch.count, batch.deadline
            if not pieces or not _can_extend(pieces[-1], batch.first, batch.last, rank):
                pieces.append(batch)
                continue
        for first, last, code, count, until in _stretches(batch, max(batch.first, floor)):
            end = pieces[-1] if pieces else None
            if end is None or not _can_extend(end, first, last, (code, count, until)):
                pieces.append(InFlightBatch(first, last, code, count, deadline=until))
            else:
                pieces[-1] = InFlightBatch(end.first, last, code, count, deadline=until)
    return pieces


def settled_stretches(batches: Sequence[InFlightBatch]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of two or more neighbouring batches in which no record counts towards the limit, as indexes
    (begin, end). The last stretch comes first, so that the caller may replace each one during the iteration."""
    end = len(batches)
    while end > 0:
        begin = end
        while begin > 0 and not batches[begin - 1].counting:
            begin -= 1
        if end - begin > 1:
            yield begin, end
        end = begin if begin < end else end - 1


def records_of(batches: Iterable[InFlightBatch], floor: int) -> tuple[StateBatch, ...]:
    """Return every cached record from `floor` on, with equal neighbours merged; pending ones have the state that they
    are changing to."""
    result: list[StateBatch] = []
    for batch in batches:
        for first, last, code, count in batch.runs(max(batch.first, floor), batch.last):
            append_merged(result, first, last, code & STATE_MASK, count)
    return tuple(result)


def _stretches(batch: InFlightBatch, first: int) -> Iterator[tuple[int, int, int, int, int]]:
    if batch.delayed:
        for low, high, code, count, _, until in batch.lock_runs(first, batch.last):
            yield low, high, code, count, until
    else:
        for low, high, code, count in batch.runs(first, batch.last):
            yield low, high, code, count, 0


def _can_extend(end: InFlightBatch, first: int, last: int, rank: tuple[int, int, int]) -> bool:
    same = end.last + 1 == first and (end.code, end.count, end.deadline) == rank
    return same and last - end.first < BATCH_RECORDS_MAX
