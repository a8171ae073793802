"""Replays a shard's stream into an empty shard, in pages, so that a node that inherits many shards keeps serving."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from shard_runtime.holding import Holding
from shard_runtime.record_log import CLAIM_TYPE, NOOP_TYPE, Entry, LogError, RecordLog, StreamId
from shard_runtime.shard import Codec, CommandT, RecordT


class BrokenRecordError(LogError):
    """An entry of the stream cannot be decoded; the shard cannot be served until it is repaired."""


@dataclass(slots=True)
class ReplayedLog:
    """How much was replayed, and how much of it was of an unknown type or version (SC-51)."""

    entries: int = 0
    unknown: int = 0


async def replay_log(
    record_log: RecordLog,
    codec: Codec[RecordT],
    holding: Holding[CommandT, RecordT],
    stream: str,
    *,
    replay_from: StreamId,
    through: StreamId,
    page_entries: int,
) -> ReplayedLog:
    """Replay `replay_from`…`through` (both inclusive, CM-12) in order, yielding to the loop after every page.

    The claim at `through` is there already, so nothing an older owner sends can land behind it (SR-6). Raises LogError
    when the store cannot be read, BrokenRecordError for bytes that no codec version wrote.
    """
    result = ReplayedLog()
    after = predecessor(replay_from)
    while True:
        page = await record_log.read(stream, after, through, page_entries)
        for entry in page:
            _replay_entry(codec, holding, stream, entry, result)
        if len(page) < page_entries:
            return result
        after = page[-1].id
        await asyncio.sleep(0)


def predecessor(entry: StreamId) -> StreamId:
    """The largest id below `entry`, for reads whose lower bound is exclusive."""
    if entry.seq:
        return StreamId(entry.epoch, entry.seq - 1)
    return StreamId(entry.epoch - 1, 2**64 - 1) if entry.epoch else entry


def _replay_entry(
    codec: Codec[RecordT], holding: Holding[CommandT, RecordT], stream: str, entry: Entry, result: ReplayedLog
) -> None:
    result.entries += 1
    if entry.kind in {CLAIM_TYPE, NOOP_TYPE}:
        holding.positions.note(entry.id, None)
        return
    try:
        record = codec.decode(entry.kind, entry.record)
    except ValueError as error:
        raise BrokenRecordError(
            f"entry {entry.id} of {stream} (type {entry.kind!r}, {len(entry.record)} bytes) cannot be read: {error}. "
            "Look at it with `sharegroups state dump` before anything is repaired."
        ) from error
    if record is None:
        result.unknown += 1
        holding.positions.note_unknown(entry.id)
        return
    holding.shard.replay(record)
    holding.positions.note(entry.id, holding.shard.anchor(record))
