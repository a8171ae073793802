"""Warns before a store node's memory limit, with the topics that fill it (CM-211), and when records are refused there
(CM-214)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from kip932.sizes import size_text
from partition_leader.topic_rpc.log_dirs import LogDirsService, StoreView
from shard_runtime.record_log.store_room import SETTING, Reported, StoreRoom
from shard_runtime.record_log.store_usage import MAKE_ROOM, MORE_MEMORY, StoreUsage

log = structlog.get_logger(__name__)

#: How many topics a warning names.
TOPICS_MAX: Final = 5


class LimitedStore(StoreView, Protocol):
    """The nodes of this process's store, and how many more records they take."""

    @property
    def room(self) -> StoreRoom:
        """Return the space that the store has left for records."""
        ...

    def limit_records(self, leaders: Callable[[], int], reported: Reported) -> None:
        """Take records only while there is room for them; see `StoreRoom.serve`."""
        ...


def records_refused(node: str, usage: StoreUsage, full: bool) -> None:
    """Log that records are refused from now on, or taken again (CM-214)."""
    used, limit = size_text(usage.used_bytes), size_text(usage.limit_bytes)
    if full:
        log.warning(
            "records_refused_store_full",
            node=node,
            used=used,
            limit=limit,
            percent=usage.percent,
            setting=SETTING,
            effect="producers wait, and try again until their delivery.timeout.ms; dead letters wait too. Consumers, "
            "acknowledgements and deletions go on",
            try_next=f"{MAKE_ROOM}; or {MORE_MEMORY}",
        )
    else:
        log.info("records_taken_again", node=node, used=used, limit=limit)


class StoreMemoryWarnings:
    """One task for each crossing of a level; there are few, since a level must be left before it is crossed again."""

    def __init__(self, log_dirs: LogDirsService) -> None:
        self._log_dirs = log_dirs
        self._tasks: set[asyncio.Task[None]] = set()

    def crossed(self, node: str, usage: StoreUsage) -> None:
        """Log that the node's memory has crossed a level, once the largest topics there are known."""
        task = asyncio.get_running_loop().create_task(self._warn(node, usage), name="store-memory-warning")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _warn(self, node: str, usage: StoreUsage) -> None:
        largest: list[tuple[str, int]] = []
        try:
            largest = await self._log_dirs.largest(node, TOPICS_MAX)
        except Exception:
            log.exception("largest_topics_unknown", effect="the warning names none")
        log.warning(
            "store_memory_nearly_full",
            node=node,
            used=size_text(usage.used_bytes),
            limit=size_text(usage.limit_bytes),
            percent=usage.percent,
            left=size_text(usage.left_bytes or 0),
            largest_topics_led_here=[f"{topic}: {size_text(size)}" for topic, size in largest],
            effect="at the limit the store refuses every write, of records, acknowledgements and deletions; nothing "
            "that it holds is lost",
            try_next=f"{MAKE_ROOM}; or {MORE_MEMORY}",
        )
