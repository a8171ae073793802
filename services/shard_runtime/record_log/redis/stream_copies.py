"""Reads streams as they are stored, for a backup: every field of every entry, not decoded (CM-140, CM-141).

It only reads. A store that fails over meanwhile may have lost entries that were read before: then every call raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from shard_runtime.record_log.protocol import (
    STREAM_START,
    LogError,
    ShardId,
    StoreUnavailableError,
    StreamId,
    StreamTip,
)
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.codec import entries, stream_id, stream_tip
from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    Command,
    ConnectionLostError,
    ErrorReply,
    Reply,
    Store,
    StoreSettings,
    parse_replication,
)
from shard_runtime.record_log.redis.query_connection import QueryConnections
from shard_runtime.record_log.redis.transaction_store import StoreTransactionStore
from shard_runtime.record_log.transaction_store import BadCursorError, StoredTransaction


class HistoryChangedError(LogError):
    """The store failed over or was restarted during the copy, so entries read before may be lost. Start over."""


class RawEntry(NamedTuple):
    """An entry as it is stored: its fields' names and values, alternating."""

    id: StreamId
    fields: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RawPage:
    """Some entries. `first`: the oldest id still in the stream right after the read. `damaged`: ids whose checksum is
    wrong, with the reason. `largest`, `size`: bytes of the largest entry, and of all."""

    entries: list[RawEntry]
    first: StreamId
    damaged: list[tuple[StreamId, str]]
    largest: int
    size: int


class StreamCopies:
    """Reads the streams of one store."""

    def __init__(self, store: Store, settings: StoreSettings) -> None:
        self._store = store
        self._settings = settings
        self._queries = QueryConnections(store, settings, None)
        self._transactions = StoreTransactionStore(self._queries, settings)
        self._histories: set[str] = set()

    async def begin(self) -> None:
        """Note the histories of all masters. Raises StoreUnavailableError."""
        self._histories |= await self._queries.answered("of the store", self._current_histories)

    async def _current_histories(self) -> set[str]:
        """The histories of all masters. Raises StoreUnavailableError."""
        found: set[str] = set()
        try:
            await self._store.refresh()
            for node in self._store.nodes:
                connection = await self._store.connect(node)
                try:
                    (info,) = await connection.run([INFO_REPLICATION], self._settings.reply_ms)
                finally:
                    await connection.close()
                if isinstance(info, ErrorReply):  # it would be parsed as an empty history
                    raise StoreUnavailableError(f"store node {node}: it answered {info}")
                found.add(parse_replication(info).history)
        except ConnectionLostError as error:
            raise StoreUnavailableError(str(error)) from error
        return found

    async def tip(self, stream: str) -> StreamTip | None:
        """The stream's last id, length and first id; None when it does not exist."""
        (reply,) = await self._ask(stream, ("EVALSHA", scripts.STREAM_TIP.digest, 1, stream))
        return None if reply is None else stream_tip(reply)

    async def replay_from(self, shard: ShardId) -> StreamId:
        """The id where a replay of the shard begins, by its owner record; the lowest id without one (CM-18)."""
        (reply,) = await self._ask(shard.owner_key, ("HMGET", shard.owner_key, "replay_from"))
        return STREAM_START if reply[0] is None else stream_id(reply[0])

    async def page(self, stream: str, after: StreamId, through: StreamId, count: int) -> RawPage | None:
        """Up to `count` entries with id > `after` and ≤ `through`; None when the stream does not exist any more."""
        found, tip = await self._ask(
            stream,
            ("XRANGE", stream, f"({after}", str(through), "COUNT", count),
            ("EVALSHA", scripts.STREAM_TIP.digest, 1, stream),
        )
        if tip is None:
            return None
        raw = [RawEntry(stream_id(at), tuple(fields)) for at, fields in found]
        damaged = [(entry.id, entry.damage) for entry in entries(stream, found) if entry.damage]
        sizes = [sum(map(len, entry.fields)) for entry in raw]
        return RawPage(raw, stream_tip(tip).first, damaged, max(sizes, default=0), sum(sizes))

    async def hash_of(self, key: str) -> dict[bytes, bytes]:
        """All fields of a small hash; empty when there is none."""
        (reply,) = await self._ask(key, ("HGETALL", key))
        return dict(reply) if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

    async def string_of(self, key: str) -> bytes | None:
        """A string; None when there is none."""
        (reply,) = await self._ask(key, ("GET", key))
        return reply if isinstance(reply, bytes) else None

    async def transactions(self, take: Callable[[str, StoredTransaction], Awaitable[None]]) -> None:
        """Call `take` with each record of a transactional id, with some of them twice. Raises StoreUnavailableError,
        and HistoryChangedError when a node failed over meanwhile."""
        cursor = ""
        while True:
            try:
                page = await self._transactions.page(cursor)
            except BadCursorError as error:
                raise HistoryChangedError(f"{error}; begin again") from error
            for transactional_id, stored in page.records:
                await take(transactional_id, stored)
            cursor = page.next_cursor
            if not cursor:
                break
        if await self._queries.answered("of the store", self._current_histories) - self._histories:
            raise HistoryChangedError("the store failed over while records of transactions were read; begin again")

    async def close(self) -> None:
        """Close every connection."""
        await self._queries.close()

    async def _ask(self, key: str, *commands: Command) -> list[Reply]:
        answered = await self._queries.repeat(key, commands)
        for reply in answered.replies:
            if isinstance(reply, ErrorReply):
                raise LogError(f"reading {key}: the store answered {reply}")
        if answered.history not in self._histories:
            raise HistoryChangedError(
                "the store failed over, was restarted or got another master while it was read, so what was read before "
                "may not fit; begin again"
            )
        return answered.replies
