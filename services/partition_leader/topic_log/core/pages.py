"""A sparse index over one log: pages of about a thousand batches with their bytes and largest timestamp (CM-45).

It is built lazily, when somebody asks by timestamp or by size; appending costs it nothing. Timestamps are the
producers' and may go back and forth, so a page keeps its largest, and a search goes over all pages (few).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from partition_leader.topic_log.core.batch import LogBatch

PAGE_BATCHES: Final = 1_000


class Page(NamedTuple):
    """Neighbouring batches: everything in [`start`, `end`); `max_batch` holds the largest timestamp."""

    start: int
    end: int
    batches: int
    size: int
    max_timestamp_ms: int
    max_batch: int


class PageIndex:
    """Pages of one log, oldest first; the last may be short and is then read again."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: list[Page] = []

    @property
    def pages(self) -> Sequence[Page]:
        """Oldest first."""
        return self._pages

    @property
    def size(self) -> int:
        """Bytes of all batches indexed."""
        return sum(page.size for page in self._pages)

    def resume(self, log_start: int) -> int:
        """Where to read on: behind the last full page; a page the log start has entered, and a short one, go."""
        self.trim(log_start)
        if self._pages and self._pages[-1].batches < PAGE_BATCHES:
            self._pages.pop()
        return max(self._pages[-1].end, log_start) if self._pages else log_start

    def add(self, start: int, batches: Sequence[LogBatch]) -> int:
        """Index the next batches, read from `start`; where they end."""
        largest = max(batches, key=lambda batch: batch.max_timestamp_ms)
        end = batches[-1].end_offset
        size = sum(batch.size for batch in batches)
        self._pages.append(Page(start, end, len(batches), size, largest.max_timestamp_ms, largest.base_offset))
        return end

    def trim(self, log_start: int) -> None:
        """Forget pages that lie, in whole or in part, below `log_start`. A page entered is indexed again from there on,
        unless others follow it: then it stays, with the bytes and timestamps it had."""
        keep = next((i for i, page in enumerate(self._pages) if page.end > log_start), len(self._pages))
        del self._pages[:keep]
        if len(self._pages) == 1 and self._pages[0].start < log_start:
            self._pages.clear()

    def from_timestamp(self, timestamp_ms: int) -> int | None:
        """Where the first page begins that holds a record at or after `timestamp_ms`; None: there is none."""
        return next((page.start for page in self._pages if page.max_timestamp_ms >= timestamp_ms), None)

    def largest(self) -> Page | None:
        """The first page with the largest timestamp of all."""
        return max(self._pages, key=lambda page: page.max_timestamp_ms, default=None)
