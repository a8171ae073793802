"""An operator's notes beside a stream: damaged entries that replays skip, and when each was noted (CM-103)."""

from __future__ import annotations

from typing import Final

from shard_runtime.record_log.protocol import LogError, StoreUnavailableError, StreamId
from shard_runtime.record_log.redis.codec import stream_id
from shard_runtime.record_log.redis.connection import ErrorReply
from shard_runtime.record_log.redis.query_connection import QueryConnections

_SKIPS_MAX: Final = 1_000


async def read_skips(queries: QueryConnections, key: str) -> frozenset[StreamId]:
    """The ids noted in a hash, read as one page so that the answer is bounded. Raises LogError."""
    reply = (await queries.repeat(key, (("HSCAN", key, 0, "COUNT", _SKIPS_MAX),))).replies[0]
    if isinstance(reply, ErrorReply):
        raise LogError(f"reading {key}: the store answered {reply}")
    return frozenset(stream_id(word) for word in reply[1][::2])


async def write_skip(queries: QueryConnections, key: str, entry: StreamId, replicas: int) -> None:
    """Note an id with the store's time; when this returns, `replicas` replicas have the note. Raises LogError."""
    now = (await queries.repeat(key, (("TIME",),))).replies[0]
    answered = await queries.repeat(key, (("HSET", key, str(entry), now[0]),), replicas)
    reply = answered.replies[0]
    if isinstance(reply, ErrorReply):
        raise LogError(f"noting {entry} in {key}: the store answered {reply}")
    if answered.acked < replicas:
        raise StoreUnavailableError(f"{key}: the note is on {answered.acked} replicas, not {replicas}; try again")
