"""Which histories of the embedded store ended with everything on disk, from one start to the next (CM-104).

A store that ends in good order has written all it confirmed, also with `appendfsync everysec`; then no tail is lost and
no log has to jump. What is noted holds for an unbroken row of good endings only: behind one that is not known to be
good, a claim may be missing without a trace.
"""

from __future__ import annotations

from typing import Final

from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    ConnectionLostError,
    ErrorReply,
    parse_replication,
)
from shard_runtime.record_log.redis.keys import META_TOUCH
from shard_runtime.record_log.redis.topology import open_store
from share_node.data_directory import DataDirectory

_HISTORIES_MEMO: Final = "store.histories"
_CLEAN_MEMO: Final = "store.clean"
_KEPT_MAX: Final = 64
_FLUSH_MS: Final = 10_000
_REPLY_MS: Final = 15_000


class StoreEndings:
    """The notes in one data directory."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._before: list[str] = []

    def begin(self) -> None:
        """Before the store starts: from now on it counts as ended badly, until it is known to have ended well."""
        known = (self._directory.remembered(_HISTORIES_MEMO) or "").split()
        clean = self._directory.remembered(_CLEAN_MEMO)
        self._before = known if known and clean == known[-1] else []
        self._directory.remember(_CLEAN_MEMO, "")

    def broken(self) -> None:
        """The store died meanwhile."""
        self._before = []

    async def began(self, url: str) -> tuple[str, ...]:
        """Once it serves: its history, then those before it that ended well, the newest first."""
        history = await self._ask(url, flush=False)
        if not history:
            return ()
        self._directory.remember(_HISTORIES_MEMO, " ".join([*self._before, history][-_KEPT_MAX:]))
        return (history, *reversed(self._before))

    async def flushed(self, url: str) -> str:
        """Before it is ended, when nobody writes any more: its history once all is on disk; "" when that is not so."""
        return await self._ask(url, flush=True)

    def ended(self, history: str) -> None:
        """It ended with status 0 after `flushed` answered this."""
        if history:
            self._directory.remember(_CLEAN_MEMO, history)

    @staticmethod
    async def _ask(url: str, *, flush: bool) -> str:
        try:
            store = open_store(url)
            await store.refresh()
            connection = await store.connect(store.node_of(META_TOUCH) or "")
            try:
                # WAITAOF tells of the writes of its own connection, and so of all before them.
                flushing = [("SET", META_TOUCH, "0"), ("WAITAOF", 1, 0, _FLUSH_MS)] if flush else []
                *replies, replication = await connection.run([*flushing, INFO_REPLICATION], _REPLY_MS)
            finally:
                await connection.close()
        except ConnectionLostError:
            return ""
        if any(isinstance(reply, ErrorReply) for reply in replies) or (flush and replies[1][0] < 1):
            return ""
        return parse_replication(replication).history
