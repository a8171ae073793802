"""Remembers which histories of the embedded store ended with everything on disk, from start to start (CM-104).

A store that ends in good order has everything on disk that it confirmed, also with `appendfsync everysec`. Then no tail
is lost and no log has to jump over offsets. The notes cover only an unbroken series of such endings: after any other
ending, a claim may be missing without a trace.
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
        """Call this before the store starts. Until `ended` is called, the store counts as not ended in good order."""
        known = (self._directory.remembered(_HISTORIES_MEMO) or "").split()
        clean = self._directory.remembered(_CLEAN_MEMO)
        self._before = known if known and clean == known[-1] else []
        self._directory.remember(_CLEAN_MEMO, "")

    def broken(self) -> None:
        """Forget the earlier histories, because the store died."""
        self._before = []

    async def began(self, url: str) -> tuple[str, ...]:
        """Call this when the store serves. Returns its history, then the earlier ones that ended well, newest first."""
        history = await self._ask(url, flush=False)
        if not history:
            return ()
        self._directory.remember(_HISTORIES_MEMO, " ".join([*self._before, history][-_KEPT_MAX:]))
        return (history, *reversed(self._before))

    async def flushed(self, url: str) -> str:
        """Call this before ending the store, when no process writes any more. Returns its history when everything is on
        disk, else ""."""
        return await self._ask(url, flush=True)

    def ended(self, history: str) -> None:
        """Note that the store ended with status 0; `history` is what `flushed` returned before."""
        if history:
            self._directory.remember(_CLEAN_MEMO, history)

    @staticmethod
    async def _ask(url: str, *, flush: bool) -> str:
        try:
            store = open_store(url)
            await store.refresh()
            connection = await store.connect(store.node_of(META_TOUCH) or "")
            try:
                # WAITAOF covers writes of its own connection, and so everything written before them.
                flushing = [("SET", META_TOUCH, "0"), ("WAITAOF", 1, 0, _FLUSH_MS)] if flush else []
                *replies, replication = await connection.run([*flushing, INFO_REPLICATION], _REPLY_MS)
            finally:
                await connection.close()
        except ConnectionLostError:
            return ""
        if any(isinstance(reply, ErrorReply) for reply in replies) or (flush and replies[1][0] < 1):
            return ""
        return parse_replication(replication).history
