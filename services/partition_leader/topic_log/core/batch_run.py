"""Consecutive batches in memory: the tail cache (P-8, CM-46), and the last page of cold reads.

`read` finds the first batch by bisection and returns the same objects to all groups, so that they share the bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from partition_leader.topic_log.core.batch import LogBatch

_COMPACT_AT = 256
#: The memory overhead of a batch beyond its bytes: measured with tracemalloc, 439 bytes with a producer and 371 without
#: (the tuple, its numbers, the header of the bytes object, and its list entries).
BATCH_BYTES: Final = 440


class BatchRun:
    """All batches of a log with offsets in [`start`, `end`), up to a memory limit; the oldest are evicted first.

    Each batch counts towards the limit with its bytes plus BATCH_BYTES. When only the bytes counted, batches of one
    small record took two hundred times the limit.
    """

    __slots__ = ("_batches", "_before", "_ends", "_head", "_limit", "_total", "end", "start")

    def __init__(self, start: int, limit_bytes: int) -> None:
        self.start = start
        self.end = start
        self._limit = limit_bytes
        self._batches: list[LogBatch] = []
        self._ends: list[int] = []  # the last offset of each batch
        self._before: list[int] = []  # bytes ever added before each batch
        self._total = 0
        self._head = 0

    @classmethod
    def of(cls, start: int, end: int, batches: Sequence[LogBatch], limit_bytes: int) -> BatchRun:
        """Return a run of batches just read. The limit is not applied, since they are in memory already."""
        run = cls(start, limit_bytes)
        for batch in batches:
            run._push(batch)
        run.end = max(run.end, end)
        return run

    @property
    def size(self) -> int:
        """The bytes of all batches."""
        return self._total - self._before[self._head] if self._head < len(self._batches) else 0

    @property
    def memory(self) -> int:
        """The memory that the batches take, in bytes; the limit bounds this."""
        return self.size + (len(self._batches) - self._head) * BATCH_BYTES

    @property
    def batches(self) -> tuple[LogBatch, ...]:
        """All batches, in offset order."""
        return tuple(self._batches[self._head :])

    def append(self, batches: Sequence[LogBatch], end: int) -> None:
        """Add batches just committed; the run then ends at `end`. Evict the oldest down to the limit."""
        for batch in batches:
            self._push(batch)
        self.end = end
        self._evict()

    def set_limit(self, limit_bytes: int) -> None:
        """Change the limit; it takes effect at once."""
        self._limit = limit_bytes
        self._evict()

    def trim(self, log_start: int) -> None:
        """Drop batches that end below `log_start`."""
        head = self._head
        while head < len(self._batches) and self._ends[head] < log_start:
            head += 1
        self._drop_to(head)
        self.start = min(max(self.start, log_start), self.end)

    def read(
        self, offset: int, max_bytes: int, max_offsets: int, max_batches: int | None = None
    ) -> tuple[LogBatch, ...]:
        """Return batches, starting with the one that has `offset` or else the first after it: at least one, then as
        many as fit.

        With `max_offsets` > 0 the result ends once it covers that many offsets from `offset` on.
        """
        batches = self._batches
        first = bisect_left(self._ends, offset, self._head)
        if first >= len(batches):
            return ()
        stop = self._before[first] + max(max_bytes, batches[first].size)
        last = bisect_left(self._before, stop, first + 1)  # before[i] < stop …
        while last > first + 1 and self._before[last - 1] + batches[last - 1].size > stop:
            last -= 1  # … and batch i itself must fit
        if max_offsets:
            enough = bisect_left(self._ends, max(offset, batches[first].base_offset) + max_offsets - 1, first) + 1
            last = min(last, enough)
        if max_batches is not None:
            last = min(last, first + max_batches)
        return tuple(batches[first:last])

    def bytes_from(self, offset: int) -> int:
        """Return the bytes of the batches at or after `offset`."""
        first = bisect_left(self._ends, offset, self._head)
        return self._total - self._before[first] if first < len(self._batches) else 0

    def _push(self, batch: LogBatch) -> None:
        self._batches.append(batch)
        self._ends.append(batch.last_offset)
        self._before.append(self._total)
        self._total += batch.size
        self.end = batch.end_offset

    def _evict(self) -> None:
        head = self._head
        count = len(self._batches)
        while head < count and self._total - self._before[head] + (count - head) * BATCH_BYTES > self._limit:
            head += 1
        self._drop_to(head)

    def _drop_to(self, head: int) -> None:
        if head == self._head:
            return
        self.start = max(self.start, self._ends[head - 1] + 1)
        for index in range(self._head, head):
            self._batches[index] = _GONE
        self._head = head
        if head >= _COMPACT_AT and head * 2 >= len(self._batches):
            del self._batches[:head], self._ends[:head], self._before[:head]
            self._head = 0


_GONE = LogBatch(-1, -1, 0, b"", 0, 0)
