"""Reads one topic log: from the tail cache without waiting, else from the store in pages (PL-006, CM-45, CM-46).

It never reads beyond the high watermark. It returns a batch's bytes as they are; only a search by timestamp decodes a
batch. Each partition runs at most one cold read at a time: groups that need the same batches share it, and memory stays
bounded.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from operator import attrgetter
from typing import Final

import structlog

from kip932.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, OFFSET_MAX_TIMESTAMP
from kip932.record_batches import open_batch
from partition_leader.topic_log.codec import read_batch, read_marker
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.core.batch_run import BatchRun
from partition_leader.topic_log.core.coverage import Coverage
from partition_leader.topic_log.core.pages import PAGE_BATCHES, PAGE_BYTES
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.state import FoundOffset, LogState, Measured, ReadResult
from shard_runtime.record_log.protocol import RecordLog, StreamId

log = structlog.get_logger(__name__)

_FIRST_PAGE = 8
_last_offset = attrgetter("last_offset")
_LOSSES_LOGGED_MAX: Final = 1_000
_LARGEST_PAGE = 512
_NO_LIMIT: Final = 1 << 62
#: The largest batch, in bytes, that is decoded on the event loop. Decompressed it has at most 16 MiB, since zstd
#: expands one byte to at most 32,768.
_DECODED_AT_ONCE = 1 << 9
#: The most records that are decoded there: in a batch of Kafka's each takes about a microsecond.
_RECORDS_AT_ONCE = 1 << 10


class LogReader:
    """Reads one log."""

    __slots__ = ("_check_leader", "_cold", "_indexing", "_log", "_losses", "_settings", "_state", "_unreadable")

    def __init__(
        self,
        record_log: RecordLog,
        state: LogState,
        settings: TopicLogSettings,
        *,
        check_leader: Callable[[], None],
        unreadable: Callable[[int], None],
    ) -> None:
        self._log = record_log
        self._state = state
        self._settings = settings
        self._check_leader = check_leader
        self._unreadable = unreadable
        self._losses: set[tuple[int, int]] = set()
        self._cold = asyncio.Lock()
        self._indexing = asyncio.Lock()

    def cached(self, offset: int, max_bytes: int, max_offsets: int) -> ReadResult | None:
        """Return the batches in memory at `offset`, or None when `read` is needed. Raises OffsetOutOfRangeError."""
        state = self._state
        if not state.log_start <= offset <= state.high_watermark:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {state.shard.name} is outside "
                f"[{state.log_start}, {state.high_watermark}], what the log holds"
            )
        if offset >= state.data_end:
            return self._result(offset, ())
        if state.tail.start <= offset:
            return self._result(offset, state.tail.read(offset, max_bytes, max_offsets))
        window = state.window
        if window is not None and window.start <= offset < window.end:
            batches = window.read(offset, max_bytes, max_offsets)
            if batches:
                return self._result(offset, batches)
        return None

    async def read(self, offset: int, max_bytes: int, max_offsets: int) -> ReadResult:
        """Read like `cached`, but read from the store what is not in memory."""
        result = self.cached(offset, max_bytes, max_offsets)
        if result is not None:
            return result
        async with self._cold:
            result = self.cached(offset, max_bytes, max_offsets)
            if result is not None:
                return result
            window = await self._read_window(offset, max_bytes)
            self._state.window = window
            self._note_end(window)
        self.cached(offset, 0, 1)  # the log start may have passed the offset during the read
        # If there are no batches, the hole ends where this read ended: later appends are after it (CM-47).
        return self._result(offset, window.read(offset, max_bytes, max_offsets), window.end)

    async def _read_window(self, offset: int, max_bytes: int) -> BatchRun:
        """Read one part of the log from the store. XRANGE has no byte limit, so COUNT follows from the size of the
        batches just read. It is small at first, since old batches may be far larger than recent ones."""
        settings, state = self._settings, self._state
        want = min(max(max_bytes, settings.read_ahead_bytes), settings.cold_read_max_bytes)
        end = state.high_watermark
        after, through = state.position(offset), StreamId(state.epoch, end)
        batches: list[LogBatch] = []
        size, page = 0, _FIRST_PAGE
        coverage = Coverage(offset)
        while True:
            mean = max(size // len(batches), 1) if batches else state.mean_batch_bytes
            count = min(max((want - size) // mean, 1), page)
            entries = await self._log.read(state.main, after, through, count)
            for entry in entries:
                batch = read_batch(entry)
                if batch is not None and batch.last_offset >= offset:
                    batches.append(batch)
                    size += batch.size
                    coverage.holds(batch.base_offset, max(batch.end_offset, entry.id.seq))
                elif (hole := read_marker(entry)) is not None:
                    coverage.holds(hole.start, hole.end)
                    state.holes.add(hole.start, hole.end)
                elif not entry.damage and entry.id.seq:  # an entry of a later build: it is not lost
                    coverage.holds(coverage.next, entry.id.seq)
            if len(entries) < count:
                coverage.holds(end, end)
                await self._note_losses(coverage)
                return BatchRun.of(offset, end, batches, size)
            if size >= want:
                await self._note_losses(coverage)
                return BatchRun.of(offset, 0, batches, size)
            after, page = entries[-1].id, min(page * 8, _LARGEST_PAGE)

    async def _note_losses(self, coverage: Coverage) -> None:
        """Log once which records cannot be read; every group skips them like a hole (CM-102).

        Raises KafkaError if a later owner or the topic's deletion may have removed their entries.
        """
        state = self._state
        if not tuple(coverage.above(state.log_start)):
            return
        self._check_leader()
        if await self._log.tip(state.main) is None:
            raise UnknownTopicOrPartitionError(f"{state.shard.name} was deleted")
        self._check_leader()
        for first, last in coverage.above(state.log_start):
            state.holes.add(first, last + 1)
            if (first, last) in self._losses or len(self._losses) >= _LOSSES_LOGGED_MAX:
                continue
            self._losses.add((first, last))
            self._unreadable(last - first + 1)
            log.error(
                "records_unreadable",
                cause="their entries in the store are damaged or missing",
                effect="groups move over them",
                shard=state.shard.name,
                stream=state.main,
                first_offset=first,
                last_offset=last,
            )

    def _note_end(self, window: BatchRun) -> None:
        """Note where the data ends, if no batch was found up to the end and none was appended during the read."""
        state = self._state
        if not window.size and window.start < state.data_end <= window.end:
            state.data_end = window.start

    def _result(self, offset: int, batches: tuple[LogBatch, ...], read_end: int | None = None) -> ReadResult:
        state = self._state
        high_watermark = state.high_watermark
        hole_end = high_watermark if read_end is None else max(offset, read_end)
        data_offset = max(offset, batches[0].base_offset) if batches else hole_end
        return ReadResult(batches, data_offset, state.log_start, high_watermark, state.last_stable, state.epoch)

    def committed(self, offset: int, read: ReadResult) -> ReadResult:
        """Return the part of a read from `offset` on that is below LAST_STABLE, with the aborted transactions in it
        (PL-006). A transaction starts with a batch, so LAST_STABLE is a batch's first offset or the log's start.
        """
        stable = read.last_stable
        batches = read.batches
        if batches and batches[-1].last_offset >= stable:
            batches = batches[: bisect_left(batches, stable, key=_last_offset)]
            read = read._replace(batches=batches, data_offset=max(offset, min(read.data_offset, stable)))
        if not batches:
            return read._replace(data_offset=max(offset, min(read.data_offset, stable)))
        aborted = self._state.transactions.aborted_in(batches[0].base_offset, batches[-1].last_offset)
        return read._replace(aborted=aborted) if aborted else read

    async def offset_for(self, timestamp_ms: int, committed: bool) -> FoundOffset | None:
        """Return the first offset whose record has this timestamp or a later one; −1, −2 and −3 as in `TopicLog`
        (CM-45).

        Returns None when there is no such record. The offset is never beyond the high watermark or, with `committed`,
        beyond LAST_STABLE.
        """
        state = self._state
        if timestamp_ms == OFFSET_LATEST:
            return FoundOffset(state.last_stable if committed else state.high_watermark, -1, state.epoch)
        found = await self._offset_for(timestamp_ms)
        return None if committed and found is not None and found.offset >= state.last_stable > 0 else found

    async def _offset_for(self, timestamp_ms: int) -> FoundOffset | None:
        state = self._state
        if timestamp_ms == OFFSET_EARLIEST:
            return FoundOffset(state.log_start, -1, state.epochs.epoch_at(state.log_start))
        await self.update_pages()
        if timestamp_ms == OFFSET_MAX_TIMESTAMP:
            largest = state.pages.largest()
            if largest is None or largest.max_timestamp_ms < 0:  # markers have no timestamp
                return None
            return await self._search(largest.max_batch, largest.max_timestamp_ms)
        start = state.pages.from_timestamp(timestamp_ms)
        return None if start is None else await self._search(start, timestamp_ms)

    async def measure(self, may_read: Callable[[], bool]) -> Measured:
        """Return the log's bytes, and when its oldest batch was appended: from the index, which is brought up to date
        with as many pages from the store as `may_read` permits, and beyond it from memory (PL-960, PL-961)."""
        await self.update_pages(may_read)
        state = self._state
        indexed = state.pages.indexed(state.log_start)
        exact = indexed.exact and indexed.end >= min(state.tail.start, state.data_end)
        oldest_ms = indexed.append_time_ms
        if oldest_ms is None and state.log_start < state.data_end:
            cached = self.cached(state.log_start, 0, 1)
            oldest_ms = cached.batches[0].append_time_ms if cached is not None and cached.batches else None
        rest = state.bytes_available(indexed.end) if indexed.end < state.data_end else 0
        return Measured(indexed.size + rest, exact, oldest_ms)

    async def update_pages(self, may_read: Callable[[], bool] = lambda: True) -> None:
        """Index the batches that are not indexed yet, and re-index what is left of a page that the log start has cut;
        other indexed batches are not read again. `may_read`: asked before each page that is read from the store."""
        async with self._indexing:
            state = self._state
            log_start = state.log_start
            start = state.pages.resume(log_start)
            first = state.pages.partly_below(log_start)
            if first is not None and may_read():
                left = [batch async for page in self.headers(log_start, end=first.end) for batch in page]
                state.pages.cut(log_start, [batch for batch in left if batch.base_offset < first.end])
            end = state.data_end
            while start < end:
                if start < state.tail.start and not may_read():
                    return
                batches = await self._index_page(start, state.high_watermark, *state.pages.room())
                if not batches:
                    return
                start = state.pages.add(start, batches)
                await asyncio.sleep(0)  # the tail cache may have all of them: let other tasks run between pages

    async def headers(self, offset: int, first: int = 0, end: int = -1) -> AsyncIterator[Sequence[LogBatch]]:
        """Yield batches in pages, starting with the one that has `offset`; their bytes may be left out. `first`: the
        maximum number of batches in the first page, 0 for as many as in the others. `end`: where to stop, −1 for the
        high watermark; a few more batches may follow."""
        end = self._state.high_watermark if end < 0 else end
        size = first or PAGE_BATCHES
        while True:
            batches = await self._index_page(offset, end, size, PAGE_BYTES)
            if not batches:
                return
            yield batches
            await asyncio.sleep(0)  # as in `update_pages`
            offset, size = batches[-1].end_offset, PAGE_BATCHES

    async def between(self, first: int, last: int) -> tuple[LogBatch, ...]:
        """Return the batches with offsets in `first`…`last`: from memory if all are there, else without their bytes."""
        cached = self.cached(first, _NO_LIMIT, last - first + 1)
        if cached is not None and (not cached.batches or cached.last_offset >= last):
            return cached.covering(first, last)
        found: list[LogBatch] = []
        async for page in self.headers(first, min(last - first + 1, PAGE_BATCHES)):
            found += [batch for batch in page if batch.base_offset <= last]
            if page[-1].last_offset >= last:
                break
        return tuple(found)

    async def append_time(self, offset: int, cold: bool) -> int | None:
        """Return when the first record from `offset` on was appended (ms since 1970); None if there is none, or if it
        is not in memory and `cold` is False."""
        found = self.cached(offset, 0, 1)
        if found is not None:
            return found.batches[0].append_time_ms if found.batches else None
        if cold:
            async for page in self.headers(offset, 1):
                return page[0].append_time_ms
        return None

    async def _index_page(self, offset: int, end: int, size: int, max_bytes: int) -> Sequence[LogBatch]:
        """Return at most `size` of the next batches, of about `max_bytes` in total; none if there are none below `end`.
        Batches in the tail cache are not read from the store."""
        state = self._state
        while offset < (stored_end := min(state.tail.start, end)):
            batches = await self._stored_page(offset, stored_end, size, max_bytes)
            if batches:
                return batches
            offset = stored_end
        return state.tail.read(offset, max_bytes, 0, size) if offset < end else ()

    async def _stored_page(self, offset: int, end: int, size: int, max_bytes: int) -> list[LogBatch]:
        """Return the next batches below `end` without their bytes: `size` of them, or as many as have about
        `max_bytes`."""
        state = self._state
        after, through = state.position(offset), StreamId(state.epoch, end)
        batches: list[LogBatch] = []
        read_bytes = 0
        while len(batches) < size and read_bytes < max_bytes:
            mean = max(read_bytes // len(batches) if batches else state.mean_batch_bytes, 1)
            count = min(size - len(batches), max((max_bytes - read_bytes) // mean, 1))
            entries = await self._log.index(state.main, after, through, count)
            found = [batch for batch in map(read_batch, entries) if batch is not None and batch.last_offset >= offset]
            batches += found
            read_bytes += sum(batch.size for batch in found)
            if len(entries) < count:
                break
            after = entries[-1].id
        return batches

    async def _search(self, offset: int, timestamp_ms: int) -> FoundOffset | None:
        async for headers in self.headers(offset):
            for header in headers:
                if header.max_timestamp_ms >= timestamp_ms:
                    found = await self._search_batch(header, timestamp_ms)
                    if found is not None:
                        return found
        return None

    async def _search_batch(self, header: LogBatch, timestamp_ms: int) -> FoundOffset | None:
        state = self._state
        at = StreamId(state.epochs.epoch_at(header.base_offset), header.base_offset)
        through = StreamId(state.epoch, state.high_watermark)
        entries = await self._log.read(state.main, at, through, 1)
        batch = read_batch(entries[0]) if entries else None
        if batch is None or batch.base_offset != header.base_offset:
            return None  # trimmed during the search
        for position, found_ms in enumerate(await _timestamps(batch)):
            found = batch.base_offset + position
            if found_ms >= timestamp_ms and found >= state.log_start:
                return FoundOffset(found, found_ms, state.epochs.epoch_at(found))
        return None


async def _timestamps(batch: LogBatch) -> list[int]:
    """Return the timestamp of each record. A large batch is decoded in a thread, since it may be compressed."""
    if batch.size <= _DECODED_AT_ONCE and batch.record_count <= _RECORDS_AT_ONCE:
        return _timestamps_of(batch)
    return await asyncio.get_running_loop().run_in_executor(None, _timestamps_of, batch)


def _timestamps_of(batch: LogBatch) -> list[int]:
    try:
        base_ms, records = open_batch(batch.data, batch.record_count)
    except KafkaError:
        return [batch.max_timestamp_ms]  # it cannot be decoded: its first offset is returned
    return [base_ms + record.timestamp_delta_ms for record in records]
