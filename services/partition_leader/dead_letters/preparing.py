"""Builds one round's dead letters from its stretches, up to the byte limit of a round. Where possible they contain
copies of the source records, which are read from the share-partition's log (PL-911).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kip932.errors import KafkaError, OffsetOutOfRangeError
from partition_leader.dead_letters.core.destination import HOPS_MAX
from partition_leader.dead_letters.core.waiting import Stretch
from partition_leader.dead_letters.letter_codec import (
    DecodedBatch,
    Letter,
    Origin,
    Source,
    context_of,
    decoded,
    fits,
    hops_of,
    letter,
)
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.state import ReadResult
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.record_log.protocol import LogError
from shard_runtime.tracing import tracing

ROUND_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 20
#: The largest batch that is decoded on the event loop; a larger one is decoded in a thread.
_DECODED_AT_ONCE: Final = 1 << 14
#: The most records that are decoded there: in a batch of Kafka's each takes about a microsecond.
_RECORDS_AT_ONCE: Final = 1 << 12


class SourceRecords:
    """Reads the source records of one round, in ascending order of offsets. Keeps one decoded batch, and the batches of
    one log read.

    `through`: the last offset that the round needs.
    """

    def __init__(self, log: TopicLog, through: int) -> None:
        self._log = log
        self._through = through
        self._read: Sequence[LogBatch] = ()
        self._missing_to = -1
        self._decoded: LogBatch | None = None
        self._records: DecodedBatch | None = None

    async def at(self, offset: int, *, cached: bool = False) -> Source | None:
        """Return the record; None if the log no longer has it, or if it cannot be decoded. `cached`: also None if it is
        not in memory.

        Raises KafkaError or LogError if the log cannot be read now or this node no longer leads it.
        """
        batch = self._in_memory(offset)
        if batch is None and offset > self._missing_to:
            await self._load(offset, cached=cached)
            batch = self._in_memory(offset)
        if batch is None:
            return None
        if batch is not self._decoded:
            self._decoded = batch
            if batch.size <= _DECODED_AT_ONCE and batch.record_count <= _RECORDS_AT_ONCE:
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

    async def _load(self, offset: int, *, cached: bool) -> None:
        self._read = ()
        result: ReadResult | None = None
        count = self._through - offset + 1
        with suppress(OffsetOutOfRangeError):
            if cached:
                result = self._log.read_cached(offset, _READ_BYTES, count)
            else:
                result = await self._log.read(offset, _READ_BYTES, count)
        if result is None:
            self._missing_to = offset
            return
        self._read = result.batches
        self._missing_to = max(offset, result.data_offset - 1)


@dataclass(slots=True)
class Prepared:
    """The dead letters of one round. `taken`: their stretches. `left`: stretches beyond the byte limit of a round.
    `too_large`: those that do not fit even without a copy. `circling`: those whose chain of dead letters is too long
    (PL-923). `without_copy`: offsets whose dead letter lacks the copy that the group asks for."""

    letters: list[Letter] = field(default_factory=list)
    taken: list[Stretch] = field(default_factory=list)
    left: list[Stretch] = field(default_factory=list)
    too_large: list[Stretch] = field(default_factory=list)
    circling: list[Stretch] = field(default_factory=list)
    without_copy: list[int] = field(default_factory=list)


class LetterBuilder:
    """Builds the dead letters of one share-partition for one topic.

    `log`: the log with the source records; unused if neither copies nor hops are needed and nothing is traced.
    `copies`: whether dead letters get copies. `counts_hops`: whether the source records may be dead letters themselves.
    """

    def __init__(
        self,
        origin: Origin,
        log: TopicLog | None,
        max_message_bytes: int,
        now_wall_ms: int,
        *,
        copies: bool = True,
        counts_hops: bool = False,
    ) -> None:
        self._origin = origin
        self._log = log if copies or counts_hops or tracing.on else None
        self._copies = copies
        self._counts_hops = counts_hops
        self._max = max_message_bytes
        self._now_ms = now_wall_ms

    async def prepare(self, stretches: list[Stretch]) -> Prepared:
        """Build the dead letters of a round. Raises KafkaError or LogError if the source cannot be read now."""
        sources = None if self._log is None else SourceRecords(self._log, stretches[-1].last)
        prepared, size = Prepared(), 0
        for stretch in stretches:
            for offset in range(stretch.first, stretch.last + 1):
                if size >= ROUND_BYTES:
                    prepared.left.append(stretch.cut(offset, stretch.last))
                    break
                found = await self._letter(stretch, offset, sources, prepared)
                if found is None:
                    _extend(prepared.circling, stretch, offset)
                elif fits(found, self._max):
                    prepared.letters.append(found)
                    _extend(prepared.taken, stretch, offset)
                    size += found.size
                else:
                    _extend(prepared.too_large, stretch, offset)
        return prepared

    async def _letter(
        self, stretch: Stretch, offset: int, sources: SourceRecords | None, prepared: Prepared
    ) -> Letter | None:
        """Return the dead letter for an offset; None if its chain of dead letters is too long."""
        source, hops = None, 1
        if sources is not None:
            source = await self._source(stretch, offset, sources)
            hops = 1 + (hops_of(source) if self._counts_hops else 0)
            if hops > HOPS_MAX:
                return None
        context = context_of(source) if source is not None and tracing.on else None
        if self._copies:
            if source is not None and not stretch.bare:
                copy = self._made(stretch, offset, source, hops)
                if fits(copy, self._max):
                    return copy._replace(context=context)
            prepared.without_copy.append(offset)
        return self._made(stretch, offset, None, hops)._replace(context=context)

    async def _source(self, stretch: Stretch, offset: int, sources: SourceRecords) -> Source | None:
        """Return the source record, or None. If it is needed for nothing but its trace, it is not read from the store,
        and no failure counts."""
        if self._counts_hops or (self._copies and not stretch.bare):
            return await sources.at(offset)
        if not tracing.on:
            return None
        try:
            return await sources.at(offset, cached=True)
        except (KafkaError, LogError):
            return None

    def _made(self, stretch: Stretch, offset: int, source: Source | None, hops: int) -> Letter:
        """Return the dead letter with its reason, or without it if only that fits (PL-943)."""
        count, cause, reason = stretch.delivery_count, stretch.cause, stretch.reason
        made = letter(self._origin, offset, count, cause, now_ms=self._now_ms, source=source, hops=hops, reason=reason)
        if not reason or fits(made, self._max):
            return made
        return letter(self._origin, offset, count, cause, now_ms=self._now_ms, source=source, hops=hops)


def _extend(stretches: list[Stretch], stretch: Stretch, offset: int) -> None:
    """Add one offset of `stretch`, joined to the neighbouring offset if that belongs to the same stretch."""
    if stretches and stretches[-1].last == offset - 1 and stretches[-1].first >= stretch.first:
        stretches[-1] = stretch.cut(stretches[-1].first, offset)
    else:
        stretches.append(stretch.cut(offset, offset))
