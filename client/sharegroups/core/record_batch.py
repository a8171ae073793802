"""Which records of the fetched batches belong to this client, and which acquired offsets hold no record.

Pure arithmetic over extents: a leader returns whole batches, but only the acquired ranges are the client's (PL-250),
and an acquired offset without a record is acknowledged as GAP (CL-23, PL-232). Nothing here decodes a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """Where a fetched batch lies: `size` offsets from `base_offset` on; a control batch holds none for users."""

    base_offset: int
    size: int
    is_control: bool = False


class Acquired(NamedTuple):
    """A range of offsets acquired for this member, both ends inclusive, with its delivery count (PL-251)."""

    first: int
    last: int
    delivery_count: int


class Slice(NamedTuple):
    """Records `start`…`stop` − 1 of batch number `batch` were delivered for the `delivery_count`th time."""

    batch: int
    start: int
    stop: int
    delivery_count: int


class Selection(NamedTuple):
    """What an answer holds for the user, in offset order (CL-22), and the acquired offsets without a record."""

    slices: list[Slice]
    gaps: list[tuple[int, int]]
    ranges: list[tuple[int, int]]
    records: int


def select(acquired: Sequence[Acquired], extents: Sequence[Extent]) -> Selection:
    """Cut the acquired ranges along the batches. Both inputs are ascending and do not overlap."""
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


def clip(acquired: Sequence[Acquired], offsets_max: int) -> Sequence[Acquired]:
    """The first `offsets_max` offsets of the acquired ranges (CL-110): all of them, but of a leader that believed a
    batch which says that it is enormous. Nobody speaks of the others: their locks run out."""
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
    """The parts of `slices` that lie in `ranges`: the records that come back after a renewal (CL-27)."""
    kept: list[Slice] = []
    for batch, start, stop, delivery_count in slices:
        base = extents[batch].base_offset
        for first, last in ranges:
            low, high = max(base + start, first), min(base + stop - 1, last)
            if low <= high:
                kept.append(Slice(batch, low - base, high - base + 1, delivery_count))
    return kept


def _extend(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    """Append a range, joined to the one before when they touch."""
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))
