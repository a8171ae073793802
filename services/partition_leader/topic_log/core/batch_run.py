"""A run of batches in memory without a batch missing: the tail cache (P-8, CM-46) and the last page of cold reads.

`read` finds its place by bisection and hands out the very objects it holds, so that all groups share the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from partition_leader.topic_log.core.batch import LogBatch

_COMPACT_AT = 256
#: What a batch in memory takes besides its bytes: measured with tracemalloc, 439 bytes with a producer and 371 without
#: (the tuple, its numbers, the head of the bytes, and its place in the lists).
BATCH_BYTES: Final = 440


class BatchRun:
    """Every batch of a log that holds an offset in [`start`, `end`), within a limit of memory; the oldest go first.

    The limit bounds what the batches take, BATCH_BYTES each besides their own bytes: by those alone, batches of one
    small record took two hundred times the limit.
    """

    __slots__ = ("_batches", "_before", "_ends", "_head", "_limit", "_total", "end", "start")

    def __init__(self, start: int, limit_bytes: int) -> None:
        self.start = start
        self.end = start
        self._limit = limit_bytes
        self._batches: list[LogBatch] = []
        self._ends: list[int] = []  # last offset of each batch
        self._before: list[int] = []  # bytes ever added before each batch
        self._total = 0
        self._head = 0

    @classmethod
    def of(cls, start: int, end: int, batches: Sequence[LogBatch], limit_bytes: int) -> BatchRun:
        """A run made of batches just read; the limit is not applied, they are in memory already."""
        run = cls(start, limit_bytes)
        for batch in batches:
            run._push(batch)
        run.end = max(run.end, end)
        return run

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._total - self._before[self._head] if self._head < len(self._batches) else 0

    @property
    def memory(self) -> int:
        """Bytes that all that is held takes, which the limit bounds."""
        return self.size + (len(self._batches) - self._head) * BATCH_BYTES

    @property
    def batches(self) -> tuple[LogBatch, ...]:
        """All that is held, in offset order."""
        return tuple(self._batches[self._head :])

    def append(self, batches: Sequence[LogBatch], end: int) -> None:
        """Add what was just committed; the run now reaches `end`. Evicts from the front down to the limit."""
        for batch in batches:
            self._push(batch)
        self.end = end
        self._evict()

    def set_limit(self, limit_bytes: int) -> None:
        """Change the bound; takes effect at once."""
        self._limit = limit_bytes
        self._evict()

    def trim(self, log_start: int) -> None:
        """Drop batches that end below `log_start`."""
        head = self._head
        while head < len(self._batches) and self._ends[head] < log_start:
            head += 1
        self._drop_to(head)
        self.start = min(max(self.start, log_start), self.end)

    def read(self, offset: int, max_bytes: int, max_offsets: int) -> tuple[LogBatch, ...]:
        """Batches from the one holding `offset` (or the first after it) on: at least one, then while they fit.

        `max_offsets` (0: no bound) ends the answer once that many offsets from `offset` on are covered.
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
        return tuple(batches[first:last])

    def bytes_from(self, offset: int) -> int:
        """Bytes of the batches at or after `offset`."""
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
