"""The cluster's metadata as shards ask for it, and how complete it is known to be (SC-80 [R], SC-82, CM-20).

Completeness is looked up only while some shard wants to know: one read of the metadata log's end at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from shard_runtime.clock import Clock

log = structlog.get_logger(__name__)


class SettledMetadata:
    """The MetadataView over a node's image.

    `partition_count` and `version` look at the newest image; `metadata_end` reads the newest version in the metadata
    log from the store, now, and answers None when it cannot tell. An image that has reached a version which the log
    had at some moment is complete as of that moment.
    """

    def __init__(
        self,
        partition_count: Callable[[bytes], int | None],
        version: Callable[[], int],
        metadata_end: Callable[[], Awaitable[int | None]],
        clock: Clock,
    ) -> None:
        self._partition_count = partition_count
        self._version = version
        self._metadata_end = metadata_end
        self._clock = clock
        self._settled_ms = -1
        self._reached = -1
        self._awaited: tuple[int, int] | None = None  # (asked at, version the image must reach)
        self._look: asyncio.Task[None] | None = None

    def partition_count(self, topic_id: bytes) -> int | None:
        """Partitions of a topic; None when the image does not have it."""
        return self._partition_count(topic_id)

    def settled_since(self, now_ms: int) -> bool:
        """Whether the image is complete as of `now_ms` or later. If it is not known, that is looked up meanwhile."""
        version = self._version()
        if version < self._reached:
            self._settled_ms = self._reached = -1  # the image was rebuilt from a log that had lost entries
        if self._awaited is not None and version >= self._awaited[1]:
            self._settled_ms, self._reached = self._awaited
            self._awaited = None
        if self._settled_ms >= now_ms:
            return True
        if self._look is None and (self._awaited is None or self._awaited[0] < now_ms):
            self._look = asyncio.get_running_loop().create_task(self._look_up())
        return False

    def close(self) -> None:
        """End the look-up under way."""
        if self._look is not None:
            self._look.cancel()

    async def _look_up(self) -> None:
        asked_ms = self._clock.now_ms()
        try:
            end = await self._metadata_end()
        except Exception as error:
            log.warning("the end of the metadata log cannot be read", why=repr(error))
            end = None
        finally:
            self._look = None
        if end is not None:
            self._awaited = asked_ms, end
