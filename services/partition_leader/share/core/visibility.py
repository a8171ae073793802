"""What read_committed hides: of the batches that a log read returned, those of aborted transactions (PL-803).

It only looks at batch headers. Control batches are not hidden here; clients acknowledge them as GAP (PL-804).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from partition_leader.share.core.effects import AcquiredRange
from partition_leader.share.core.events import AbortedTransaction, BatchHeader
from partition_leader.share.core.spans import Span


def aborted_spans(batches: Sequence[BatchHeader], aborted: Iterable[AbortedTransaction]) -> list[Span]:
    """The offsets of the batches that belong to an aborted transaction, ascending."""
    waiting = [(transaction.first_offset, transaction.producer_id) for transaction in aborted]
    if not waiting:
        return []
    heapq.heapify(waiting)
    active: set[int] = set()
    spans: list[Span] = []
    for batch in batches:
        while waiting and waiting[0][0] <= batch.last_offset:
            active.add(heapq.heappop(waiting)[1])
        if batch.is_control:
            if batch.is_abort:
                active.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in active:
            spans.append((batch.base_offset, batch.last_offset))
    return spans


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
