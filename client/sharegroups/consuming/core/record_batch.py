"""Finds which records of the fetched batches belong to this client, and which acquired offsets have no record.

Pure arithmetic on offset ranges: a leader returns whole batches, but only the acquired ranges are the client's
(PL-250), and an acquired offset without a record is acknowledged as GAP (CL-23, PL-232). Nothing here decodes a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """The offsets of a fetched batch: `size` offsets starting at `base_offset`. A control batch has no user records."""

    base_offset: int
    size: int
    is_control: bool = False


class Acquired(NamedTuple):
    """A range of offsets acquired for this member, both ends inclusive, with its delivery count (PL-251)."""

    first: int
    last: int
    delivery_count: int


class Slice(NamedTuple):
    """Records `start` to `stop` − 1 of batch number `batch`, with their delivery count."""

    batch: int
    start: int
    stop: int
    delivery_count: int


class Selection(NamedTuple):
    """The user's part of a response: `slices` of records in offset order (CL-22), and how many `records` they contain.

    `gaps` are the acquired offsets without a record, `ranges` all acquired offsets; both are inclusive, joined ranges.
    """

    slices: list[Slice]
    gaps: list[tuple[int, int]]
    ranges: list[tuple[int, int]]
    records: int


def select(acquired: Sequence[Acquired], extents: Sequence[Extent]) -> Selection:
    """Assign the acquired ranges to the batches. Both inputs are ascending and do not overlap."""
    slices: list[Slice] = []
    gaps: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = []
    records = 0
    index = 0
    for first, last, delivery_count in acquired:
        _extend(ranges, first, last)
        cursor = first
        while index < len(extents) and extents[index].base_offset + extents[index].size <= first:
            index += 1
        probe = index
        while cursor <= last and probe < len(extents):
            base, size, is_control = extents[probe]
            start, stop = max(cursor, base), min(last + 1, base + size)
            if start > last:
                break
            if is_control or start >= stop:
                probe += 1
                continue
            if start > cursor:
                _extend(gaps, cursor, start - 1)
            slices.append(Slice(probe, start - base, stop - base, delivery_count))
            records += stop - start
            cursor = stop
            probe += 1
        if cursor <= last:
            _extend(gaps, cursor, last)
    return Selection(slices, gaps, ranges, records)


def cut(selection: Selection, extents: Sequence[Extent], most: int) -> tuple[Selection, Selection] | None:
    """Split a selection after the batch that reaches `most` records; a batch is never split. Returns None if nothing is
    left after it. Both parts keep the original batch numbers."""
    records, batch = 0, -1
    for number, piece in enumerate(selection.slices):
        if records >= most and piece.batch != batch:
            ahead, left = _cut_at(selection, extents[piece.batch].base_offset + piece.start)
            return (
                ahead._replace(slices=selection.slices[:number], records=records),
                left._replace(slices=selection.slices[number:], records=selection.records - records),
            )
        records, batch = records + piece.stop - piece.start, piece.batch
    return None


def _cut_at(selection: Selection, offset: int) -> tuple[Selection, Selection]:
    """Split a selection's gaps and ranges at `offset`. The caller splits the slices."""
    low, high = Selection([], [], [], 0), Selection([], [], [], 0)
    for spans, below, above in (
        (selection.gaps, low.gaps, high.gaps),
        (selection.ranges, low.ranges, high.ranges),
    ):
        for first, last in spans:
            if first < offset:
                below.append((first, min(last, offset - 1)))
            if last >= offset:
                above.append((max(first, offset), last))
    return low, high


def clip(acquired: Sequence[Acquired], offsets_max: int) -> Sequence[Acquired]:
    """Return the first `offsets_max` offsets of the acquired ranges (CL-110).

    A leader acquires more only if it trusted a batch that claims an enormous size. The client ignores the other
    offsets; their locks expire.
    """
    if sum([last - first + 1 for first, last, _ in acquired]) <= offsets_max:
        return acquired
    kept: list[Acquired] = []
    for first, last, delivery_count in acquired:
        if offsets_max <= 0:
            break
        kept.append(Acquired(first, min(last, first + offsets_max - 1), delivery_count))
        offsets_max -= last - first + 1
    return kept


def restrict(slices: Sequence[Slice], extents: Sequence[Extent], ranges: Sequence[tuple[int, int]]) -> list[Slice]:
    """Return the parts of `slices` within `ranges`: the records that poll returns again after a renewal (CL-27)."""
    kept: list[Slice] = []
    for batch, start, stop, delivery_count in slices:
        base = extents[batch].base_offset
        for first, last in ranges:
            low, high = max(base + start, first), min(base + stop - 1, last)
            if low <= high:
                kept.append(Slice(batch, low - base, high - base + 1, delivery_count))
    return kept


def _extend(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    """Append a range, joining it to the last one when they are adjacent."""
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))
