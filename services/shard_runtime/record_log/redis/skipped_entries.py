"""Reads and writes an operator's notes beside a stream: damaged entries and the settlement of each (CM-103, CM-114)."""

from __future__ import annotations

import json
from typing import Final

from shard_runtime.record_log.protocol import LogError, StoreUnavailableError, StreamId
from shard_runtime.record_log.redis.codec import stream_id
from shard_runtime.record_log.redis.connection import ErrorReply
from shard_runtime.record_log.redis.query_connection import QueryConnections
from shard_runtime.record_log.settlements import Choice, Settlement

_SKIPS_MAX: Final = 1_000


async def read_skips(queries: QueryConnections, key: str) -> dict[StreamId, Settlement]:
    """The ids noted in a hash, each with its settlement. Only one page is read, so that the reply is bounded. Raises
    LogError."""
    reply = (await queries.repeat(key, (("HSCAN", key, 0, "COUNT", _SKIPS_MAX),))).replies[0]
    if isinstance(reply, ErrorReply):
        raise LogError(f"reading {key}: the store answered {reply}")
    words = reply[1]
    return {stream_id(words[i]): from_note(words[i + 1]) for i in range(0, len(words), 2)}


async def write_skip(
    queries: QueryConnections, key: str, entry: StreamId, replicas: int, settlement: Settlement
) -> None:
    """Note a settlement with the store's time; when this returns, `replicas` replicas have the note. Raises
    LogError."""
    now = (await queries.repeat(key, (("TIME",),))).replies[0]
    note = to_note(settlement._replace(at_ms=int(now[0]) * 1_000 + int(now[1]) // 1_000))
    answered = await queries.repeat(key, (("HSET", key, str(entry), note),), replicas)
    reply = answered.replies[0]
    if isinstance(reply, ErrorReply):
        raise LogError(f"noting {entry} in {key}: the store answered {reply}")
    if answered.acked < replicas:
        raise StoreUnavailableError(f"{key}: the note is on {answered.acked} replicas, not {replicas}; try again")


def to_note(settlement: Settlement) -> str:
    """The note for the hash `<tag>:skip`. Older builds read only its field, the id, and skip the entry."""
    return json.dumps(settlement._asdict())


def from_note(note: bytes) -> Settlement:
    """Parse a note. A note of an older build is the time in seconds. A choice of a later build, or a note that cannot
    be parsed, means SKIP: the operator decided at least to go on without the entry."""
    try:
        found = json.loads(note)
        if isinstance(found, int):
            return Settlement(at_ms=found * 1_000)
        return Settlement(
            Choice(found["choice"]) if found.get("choice") in set(Choice) else Choice.SKIP,
            str(found.get("by", "")),
            str(found.get("why", "")),
            int(found.get("at_ms", 0)),
        )
    except (ValueError, TypeError, AttributeError):
        return Settlement()
