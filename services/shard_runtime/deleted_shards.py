"""Removes the streams of shards whose topic was deleted while nobody could do it for them (CM-21).

An owner removes its streams when it lets go. One that was killed, or whose removal the store did not confirm, leaves
them behind, and no reconcile ever looks at them again. So every process that saw a topic go removes its streams once
more, some time later: harmless to repeat, since a topic id is never used again and no append makes a stream. A process
that ends before that leaves it to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from shard_runtime.record_log import LogError, RecordLog, ShardId

log = structlog.get_logger(__name__)

#: Attempts for one shard, one `after_ms` apart: enough to ride out a store that is away for a while.
ATTEMPTS: Final = 100


class DeletedShards:
    """`deleted` says that a shard's topic is known deleted; `after_ms` is how long its owner is left to remove it."""

    def __init__(self, record_log: RecordLog, deleted: Callable[[ShardId], bool], after_ms: int) -> None:
        self._log = record_log
        self._deleted = deleted
        self._after_s = after_ms / 1000
        self._known: frozenset[ShardId] = frozenset()

    def look(self, shards: frozenset[ShardId]) -> list[ShardId]:
        """The shards that were there at the last look and whose topic is deleted now."""
        gone = self._known - shards
        self._known = shards
        return [shard for shard in gone if self._deleted(shard)]

    async def remove(self, shards: Sequence[ShardId]) -> None:
        """Remove what is left of them, one after the other; gives up, with a log line, after bounded attempts."""
        left = list(shards)
        for _ in range(ATTEMPTS):
            await asyncio.sleep(self._after_s)
            while left:
                try:
                    await self._log.delete_streams(left[-1])
                except LogError as error:
                    log.warning("streams of a deleted topic not removed yet", shard=left[-1].tag, why=str(error))
                    break
                left.pop()
            if not left:
                return
        log.error("streams of deleted topics are left in the store", shards=[shard.tag for shard in left])
