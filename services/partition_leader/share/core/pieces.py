"""What is settled of a window in as few batches as can be: finished, Archiving and delayed records (PL-915, PL-935).

A batch that was fetched keeps arrays with a place for each of its offsets. Where a window is wide because old records
wait, such arrays would cost memory for what nobody asks about any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kip932.ids import BATCH_RECORDS_MAX
from kip932.state_batches import StateBatch
from partition_leader.share.core.batch import NOBODY, InFlightBatch
from partition_leader.share.core.spans import append_merged
from partition_leader.share.core.transitions import STATE_MASK


def pieces_of(batches: Iterable[InFlightBatch], floor: int) -> list[InFlightBatch]:
    """The offsets from `floor` on with one batch for each stretch of one code, delivery count and end of its delay,
    held by nobody; none is larger than a record batch may be (CM-112). What is such a piece already stays the same
    object."""
    pieces: list[InFlightBatch] = []
    for batch in batches:
        if batch.codes is None and batch.member == NOBODY and batch.first >= floor:
            rank = batch.code, batch.count, batch.deadline
            if not pieces or not _goes_on(pieces[-1], batch.first, batch.last, rank):
                pieces.append(batch)
                continue
        for first, last, code, count, until in _stretches(batch, max(batch.first, floor)):
            end = pieces[-1] if pieces else None
            if end is None or not _goes_on(end, first, last, (code, count, until)):
                pieces.append(InFlightBatch(first, last, code, count, deadline=until))
            else:
                pieces[-1] = InFlightBatch(end.first, last, code, count, deadline=until)
    return pieces


def settled_stretches(batches: Sequence[InFlightBatch]) -> Iterator[tuple[int, int]]:
    """The stretches of two and more neighbours in which no record counts against the limit, as indexes (begin, end);
    the last stretch first, so that the caller may replace each as it comes."""
    end = len(batches)
    while end > 0:
        begin = end
        while begin > 0 and not batches[begin - 1].counting:
            begin -= 1
        if end - begin > 1:
            yield begin, end
        end = begin if begin < end else end - 1


def records_of(batches: Iterable[InFlightBatch], floor: int) -> tuple[StateBatch, ...]:
    """Every cached record from `floor` on, equal neighbours merged; pending ones where they are going."""
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


def _goes_on(end: InFlightBatch, first: int, last: int, rank: tuple[int, int, int]) -> bool:
    same = end.last + 1 == first and (end.code, end.count, end.deadline) == rank
    return same and last - end.first < BATCH_RECORDS_MAX
