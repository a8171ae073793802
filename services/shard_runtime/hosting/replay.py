"""Replays a shard's stream into an empty shard, in pages: between pages the node goes on serving its other shards."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from shard_runtime.hosting.shard import Codec, CommandT, RecordT
from shard_runtime.hosting.shard_tenure import ShardTenure
from shard_runtime.record_log.protocol import (
    CLAIM_TYPE,
    NOOP_TYPE,
    DamagedEntryError,
    Entry,
    RecordLog,
    ShardId,
    StreamId,
)

log = structlog.get_logger(__name__)


class BrokenRecordError(DamagedEntryError):
    """An entry of the stream is missing, is not what was written, or cannot be decoded: the shard cannot be served
    until an operator lets replays skip the entry (CM-103)."""


@dataclass(slots=True)
class ReplayedLog:
    """How many entries were replayed; how many of them are of unknown type or version (SC-51) or were skipped
    (CM-103)."""

    entries: int = 0
    unknown: int = 0
    skipped: int = 0


async def replay_log(
    record_log: RecordLog,
    codec: Codec[RecordT],
    tenure: ShardTenure[CommandT, RecordT],
    stream: str,
    *,
    replay_from: StreamId,
    through: StreamId,
    page_entries: int,
) -> ReplayedLog:
    """Replay `replay_from`…`through` (both inclusive, CM-12) in order, yielding to the loop after every page.

    The claim entry at `through` is already in the stream, so the store refuses what an older owner still sends (SR-6).
    Raises LogError when the store cannot be read: claim and replay again. Raises BrokenRecordError for an entry that is
    missing, is damaged, or that no codec version wrote, unless an operator lets replays skip it (CM-102, CM-103).
    """
    result = ReplayedLog()
    after = predecessor(replay_from)
    skips = _Skips(record_log, tenure.lease.shard, result)
    before: StreamId | None = None
    while True:
        page = await record_log.read(stream, after, through, page_entries)
        for entry in page:
            try:
                _require_next(stream, before, entry)
            except BrokenRecordError as error:
                await skips.require(entry, error)
            try:
                _replay_entry(codec, tenure, stream, entry, result)
            except BrokenRecordError as error:
                await skips.require(entry, error)
                tenure.positions.note(entry.id, None)
            before = entry.id
        if len(page) < page_entries:
            return result
        after = page[-1].id
        await asyncio.sleep(0)


def predecessor(entry: StreamId) -> StreamId:
    """The largest id below `entry`, for reads whose lower bound is exclusive."""
    if entry.seq:
        return StreamId(entry.epoch, entry.seq - 1)
    return StreamId(entry.epoch - 1, 2**64 - 1) if entry.epoch else entry


class _Skips:
    """The entries that an operator lets replays skip. Read from the store once, and only when an entry is broken."""

    def __init__(self, record_log: RecordLog, shard: ShardId, result: ReplayedLog) -> None:
        self._log = record_log
        self._shard = shard
        self._result = result
        self._ids: frozenset[StreamId] | None = None

    async def require(self, entry: Entry, error: BrokenRecordError) -> None:
        """Return when the entry may be skipped; else raise `error`."""
        if self._ids is None:
            self._ids = await self._log.skipped(self._shard)
        if entry.id not in self._ids:
            raise error
        self._result.skipped += 1
        log.warning("skipped, as an operator said", shard=self._shard.tag, entry=str(entry.id), why=str(error))


def _require_next(stream: str, before: StreamId | None, entry: Entry) -> None:
    """Raise BrokenRecordError when an entry is missing before this one. Sequences have no hole inside an epoch, and
    each epoch begins with its claim (SR-7), so a missing entry was lost."""
    if before is None or entry.id.seq == (before.seq + 1 if before.epoch == entry.id.epoch else 0):
        return
    raise _broken(stream, entry, f"does not follow {before}: entries between them are missing")


def _replay_entry(
    codec: Codec[RecordT], tenure: ShardTenure[CommandT, RecordT], stream: str, entry: Entry, result: ReplayedLog
) -> None:
    result.entries += 1
    if entry.damage:
        raise _broken(stream, entry, f"is damaged: {entry.damage}")
    if entry.kind in {CLAIM_TYPE, NOOP_TYPE}:
        tenure.positions.note(entry.id, None)
        return
    try:
        record = codec.decode(entry.kind, entry.record)
    except ValueError as error:
        raise _broken(stream, entry, f"cannot be read: {error}") from error
    if record is None:
        result.unknown += 1
        tenure.positions.note_unknown(entry.id)
        return
    try:
        tenure.shard.replay(record)
    except Exception as error:
        raise _broken(stream, entry, f"does not fit what was replayed before it: {error!r}") from error
    tenure.positions.note(entry.id, tenure.shard.anchor(record))


def _broken(stream: str, entry: Entry, what: str) -> BrokenRecordError:
    kind, name = stream[1 : stream.index("}")].split(":", 1)
    return BrokenRecordError(
        f"entry {entry.id} of {stream} (type {entry.kind!r}, {len(entry.record)} bytes) {what.rstrip('.')}. This shard "
        "is not served before that is settled; the others are. Restore the store from a copy, or go on without the "
        f"entry, and with what it changed lost: sharegroups state skip --kind {kind} --shard {name} --entry {entry.id}"
    )
