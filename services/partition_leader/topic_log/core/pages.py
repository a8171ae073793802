"""A sparse index of one log: pages of a thousand batches or 8 MiB, with their bytes and largest timestamp (CM-45).

It is built only when a look-up by timestamp or size needs it, so an append costs nothing. Timestamps come from
producers and need not ascend, so a page keeps its largest one, and a search goes through all pages (there are few).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from partition_leader.topic_log.core.batch import LogBatch

PAGE_BATCHES: Final = 1_000
#: Also limits how much is read again when the log start moves into a page.
PAGE_BYTES: Final = 8 * 1024 * 1024


class Page(NamedTuple):
    """Consecutive batches, all in [`start`, `end`). `max_batch`: the start of the batch with the largest timestamp;
    `append_time_ms`: when the first batch was appended."""

    start: int
    end: int
    batches: int
    size: int
    max_timestamp_ms: int
    max_batch: int
    append_time_ms: int

    @property
    def full(self) -> bool:
        """Return whether no more batches may join it."""
        return self.batches >= PAGE_BATCHES or self.size >= PAGE_BYTES

    def joined(self, page: Page) -> Page:
        """Return both joined into one page; `page` follows this one."""
        largest = self if self.max_timestamp_ms >= page.max_timestamp_ms else page
        return Page(
            self.start, page.end, self.batches + page.batches, self.size + page.size,
            largest.max_timestamp_ms, largest.max_batch, self.append_time_ms,
        )  # fmt: skip


class Indexed(NamedTuple):
    """The part of a log that is indexed: its bytes, whether they are exact, and where it ends. `append_time_ms`: when
    the log's first batch was appended, None if that is not known."""

    size: int
    exact: bool
    end: int
    append_time_ms: int | None


class PageIndex:
    """Pages of one log, oldest first; the last one may be short, and the next batches then join it."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: list[Page] = []

    @property
    def pages(self) -> Sequence[Page]:
        """All pages, oldest first."""
        return self._pages

    def size(self, log_start: int) -> int:
        """Return the bytes of the indexed batches from `log_start` on. A page that is partly below it is left out: the
        result may be too low, but never too high."""
        return sum(page.size for page in self._pages if page.start >= log_start)

    def indexed(self, log_start: int) -> Indexed:
        """Return what is known about the batches from `log_start` on. For a page that is partly below it, the share of
        its offsets that is left is taken as the share of its bytes."""
        pages = [page for page in self._pages if page.end > log_start]
        if not pages:
            return Indexed(0, True, log_start, None)
        first = pages[0]
        if first.start >= log_start:
            return Indexed(sum(page.size for page in pages), True, pages[-1].end, first.append_time_ms)
        left = first.size * (first.end - log_start) // (first.end - first.start)
        return Indexed(left + sum(page.size for page in pages[1:]), False, pages[-1].end, None)

    def resume(self, log_start: int) -> int:
        """Trim as `trim` does, and return the offset from which to continue the index."""
        self.trim(log_start)
        return max(self._pages[-1].end, log_start) if self._pages else log_start

    def room(self) -> tuple[int, int]:
        """Return how many batches and bytes the next call of `add` should have: the room left in the last page, or a
        full page."""
        last = self._pages[-1] if self._pages else None
        if last is None or last.full:
            return PAGE_BATCHES, PAGE_BYTES
        return PAGE_BATCHES - last.batches, PAGE_BYTES - last.size

    def add(self, start: int, batches: Sequence[LogBatch]) -> int:
        """Index the next batches, read from `start`. Returns their end offset."""
        page = _page(start, batches)
        if self._pages and not self._pages[-1].full:
            page = self._pages.pop().joined(page)
        self._pages.append(page)
        return page.end

    def trim(self, log_start: int) -> None:
        """Forget pages below `log_start`. One that is only partly below stays as it is until `cut` replaces it; but if
        it is the only page, it is dropped and indexed again from `log_start`."""
        keep = next((i for i, page in enumerate(self._pages) if page.end > log_start), len(self._pages))
        del self._pages[:keep]
        if len(self._pages) == 1 and self._pages[0].start < log_start:
            self._pages.clear()

    def partly_below(self, log_start: int) -> Page | None:
        """Return the first page if its bytes and timestamps include batches that the log no longer has; else None."""
        return self._pages[0] if self._pages and self._pages[0].start < log_start else None

    def cut(self, log_start: int, batches: Sequence[LogBatch]) -> None:
        """Replace the page that is partly below `log_start` with `batches`, its batches from there on; drop it if there
        are none."""
        self._pages[:1] = [_page(log_start, batches)] if batches else []

    def from_timestamp(self, timestamp_ms: int) -> int | None:
        """Return the start of the first page with a record at or after `timestamp_ms`; None when there is none."""
        return next((page.start for page in self._pages if page.max_timestamp_ms >= timestamp_ms), None)

    def largest(self) -> Page | None:
        """Return the first of the pages with the largest timestamp; None without pages."""
        return max(self._pages, key=lambda page: page.max_timestamp_ms, default=None)


def _page(start: int, batches: Sequence[LogBatch]) -> Page:
    largest = max(batches, key=lambda batch: batch.max_timestamp_ms)
    size = sum(batch.size for batch in batches)
    return Page(
        start, batches[-1].end_offset, len(batches), size, largest.max_timestamp_ms, largest.base_offset,
        batches[0].append_time_ms,
    )  # fmt: skip
