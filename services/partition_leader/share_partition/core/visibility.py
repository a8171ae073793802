"""Finds the batches of aborted transactions, which read_committed hides (PL-803), and each batch's transaction role
(PL-821).

It reads only batch headers. Control batches are not hidden here; clients acknowledge them as GAP (PL-804).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from partition_leader.share_partition.core.effects import AcquiredRange
from partition_leader.share_partition.core.events import AbortedTransaction, BatchHeader
from partition_leader.share_partition.core.spans import Span


def aborted_spans(batches: Sequence[BatchHeader], aborted: Iterable[AbortedTransaction]) -> list[Span]:
    """Return the offsets of batches that belong to aborted transactions, ascending.

    A transaction ends at its marker's offset, whether or not the read contains the marker: the marker's entry may be
    damaged, and records that the producer wrote later must not be hidden then.
    """
    waiting = [(one.first_offset, one.producer_id, one.last_offset) for one in aborted]
    if not waiting:
        return []
    heapq.heapify(waiting)
    ends: dict[int, int] = {}
    spans: list[Span] = []
    for batch in batches:
        while waiting and waiting[0][0] <= batch.last_offset:
            _, producer_id, last = heapq.heappop(waiting)
            ends[producer_id] = last
        if batch.is_transactional and not batch.is_control and batch.base_offset < ends.get(batch.producer_id, -1):
            spans.append((batch.base_offset, batch.last_offset))
    return spans


class TransactionKind(StrEnum):
    """The role of a batch in a transaction."""

    NONE = "none"
    MARKER = "marker"
    ABORTED = "aborted"
    OPEN = "open"


class TransactionRole(NamedTuple):
    """A batch's role, with the transactional id and how long the transaction has been open here; both only for an open
    transaction."""

    kind: TransactionKind
    transactional_id: str = ""
    open_ms: int = 0


NO_TRANSACTION: Final = TransactionRole(TransactionKind.NONE)
_MARKER: Final = TransactionRole(TransactionKind.MARKER)
_ABORTED: Final = TransactionRole(TransactionKind.ABORTED)


class TransactionPart(NamedTuple):
    """Offsets of one batch, and its role."""

    first: int
    last: int
    role: TransactionRole


def transaction_parts(
    batches: Sequence[BatchHeader],
    aborted: Iterable[AbortedTransaction],
    opened: Mapping[int, tuple[int, TransactionRole]],
) -> list[TransactionPart]:
    """Return the markers among the batches, and the batches of aborted and of open transactions, ascending. `opened`:
    by producer id, the first offset of its open transaction, and the role of its batches."""
    hidden = {first for first, _ in aborted_spans(batches, aborted)}
    found: list[TransactionPart] = []
    for batch in batches:
        role = NO_TRANSACTION
        if batch.is_control:
            role = _MARKER
        elif batch.base_offset in hidden:
            role = _ABORTED
        elif batch.is_transactional and batch.producer_id in opened:
            since, own = opened[batch.producer_id]
            role = own if batch.base_offset >= since else NO_TRANSACTION
        if role is not NO_TRANSACTION:
            found.append(TransactionPart(batch.base_offset, batch.last_offset, role))
    return found


def without(ranges: Iterable[AcquiredRange], spans: Sequence[Span]) -> tuple[AcquiredRange, ...]:
    """The ranges without the spans, with their delivery counts; both must be ascending."""
    result: list[AcquiredRange] = []
    at = 0
    for acquired in ranges:
        first = acquired.first_offset
        while at < len(spans) and spans[at][1] < first:
            at += 1
        cut = at
        while cut < len(spans) and spans[cut][0] <= acquired.last_offset:
            low, high = spans[cut]
            if low > first:
                result.append(AcquiredRange(first, low - 1, acquired.delivery_count))
            first = max(first, high + 1)
            cut += 1
        if first <= acquired.last_offset:
            result.append(AcquiredRange(first, acquired.last_offset, acquired.delivery_count))
    return tuple(result)
