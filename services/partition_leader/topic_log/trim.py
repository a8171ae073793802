"""Trims the old end of a topic's streams: by retention, after moved log starts, in the control log (CM-18, CM-45).

The new log start is durable in the control log before anything is trimmed, so a take-over in between merely finds extra
entries below the start. The entry that records the log's end always stays (CM-40). After a failed trim, the next one
trims the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from partition_leader.topic_log.core.retention import Retention, cut
from partition_leader.topic_log.reader import LogReader
from partition_leader.topic_log.state import LogState
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import LogError, RecordLog, StreamId

log = structlog.get_logger(__name__)

_SWEEP_BATCHES: Final = 50_000


@dataclass(frozen=True, slots=True)
class Trim:
    """Where the log should start, and where it should start by age alone."""

    log_start: int
    by_age: int

    def why(self, log_start: int, retention_ms: int, retention_bytes: int) -> str:
        """Return which settings require it, for a log that starts at `log_start`."""
        aged = [f"older than retention.ms={retention_ms}"] if self.by_age > log_start else []
        large = [f"more than retention.bytes={retention_bytes}"] if self.log_start > self.by_age else []
        return " and ".join(aged + large)


class LogTrimmer:
    """Computes, with the core, where the log should start, and trims the streams once that is durable."""

    __slots__ = ("_lease", "_log", "_reader", "_state")

    def __init__(self, record_log: RecordLog, state: LogState, lease: Lease, reader: LogReader) -> None:
        self._log = record_log
        self._state = state
        self._lease = lease
        self._reader = reader

    async def start_after(self, now_wall_ms: int, retention_ms: int, retention_bytes: int) -> Trim:
        """Return where the log should start by these settings (−1: no limit). One call reads a bounded number of
        batches."""
        state = self._state
        if state.log_start >= state.data_end:
            return Trim(state.log_start, state.log_start)
        excess = 0
        if retention_bytes >= 0:
            await self._reader.update_pages()
            excess = max(state.pages.size(state.log_start) - retention_bytes, 0)
        start = by_age = state.log_start
        if retention_ms < 0 and not excess:
            return Trim(start, start)
        oldest_ms = now_wall_ms - retention_ms if retention_ms >= 0 else None
        checked = 0
        async for batches in self._reader.headers(start, first=1):
            made = cut(start, batches, Retention(oldest_ms, excess))
            if by_age == start:
                by_age = cut(start, batches, Retention(oldest_ms)).log_start
            start, excess = made.log_start, made.excess_bytes
            checked += len(batches)
            if not made.exhausted or checked >= _SWEEP_BATCHES:
                break
        return Trim(start, by_age)

    async def trim_main(self) -> None:
        """Trim the batches below the log start."""
        state = self._state
        start = min(state.log_start, state.high_watermark)
        at = state.position(start)
        newest_end = StreamId(state.epoch, state.high_watermark)
        before = min(StreamId(at.epoch, at.seq + 1), newest_end)
        if await self._compact(state.main, before):
            state.epochs.trim(start)

    async def trim_control(self, before: StreamId) -> None:
        """Trim the control log below `before`; its current values have been written again from there on."""
        await self._compact(self._state.control, before)

    async def _compact(self, stream: str, before: StreamId) -> bool:
        state = self._state
        try:
            return await self._log.compact(state.shard, self._lease.incarnation, state.epoch, stream, before)
        except LogError as error:
            log.warning("stream_trim_failed", stream=stream, before=str(before), cause=str(error))
            return False
