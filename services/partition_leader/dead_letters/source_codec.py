"""Reads source records back from the share-partition's log, for the letters that copy them (PL-911)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kip932.errors import OffsetOutOfRangeError
from partition_leader.dead_letters.letter_codec import Source, decoded
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.topic_log import TopicLog

if TYPE_CHECKING:
    from kip932.api.v1.record_batch_pb2 import Record

_READ_BYTES: Final = 1 << 20
#: The largest batch that is decoded on the event loop; a larger one is decoded in a thread.
_OPENED_AT_ONCE: Final = 1 << 14


class SourceRecords:
    """Source records of one round, to be read in ascending order; keeps one decoded batch, and the batches of one read.

    `through`: the last offset that the round needs.
    """

    def __init__(self, log: TopicLog, through: int) -> None:
        self._log = log
        self._through = through
        self._read: Sequence[LogBatch] = ()
        self._missing_to = -1
        self._opened: LogBatch | None = None
        self._records: tuple[int, Sequence[Record]] | None = None

    async def at(self, offset: int) -> Source | None:
        """Return the record; None when the log does not have it any more, or it cannot be decoded.

        Raises KafkaError, LogError when the log cannot be read at present, or this node does not lead it any more.
        """
        batch = self._in_memory(offset)
        if batch is None and offset > self._missing_to:
            await self._load(offset)
            batch = self._in_memory(offset)
        if batch is None:
            return None
        if batch is not self._opened:
            self._opened = batch
            if batch.size <= _OPENED_AT_ONCE:
                self._records = decoded(batch)
            else:
                self._records = await asyncio.get_running_loop().run_in_executor(None, decoded, batch)
        if self._records is None:
            return None
        base_ms, records = self._records
        record = records[offset - batch.base_offset]
        return Source(record, base_ms + record.timestamp_delta_ms)

    def _in_memory(self, offset: int) -> LogBatch | None:
        for batch in self._read:
            if batch.base_offset <= offset <= batch.last_offset:
                return batch
        return None

    async def _load(self, offset: int) -> None:
        self._read = ()
        try:
            result = await self._log.read(offset, _READ_BYTES, self._through - offset + 1)
        except OffsetOutOfRangeError:
            self._missing_to = offset
            return
        self._read = result.batches
        self._missing_to = max(offset, result.data_offset - 1)
