"""Work on many share-partitions that no caller waits for, done in slices so that other tasks run in between (CM-97).

To callers it appears to be done at once: the work due on a share-partition is done before it is handed out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from partition_leader.share.partition_host import SharePartitionHost
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many share-partitions are worked on in one turn of the event loop: about 10 ms.
SLICE: Final = 200

Work = Callable[[SharePartitionHost], object]


class DeferredWork:
    """Work by share-partition, in the order in which it came.

    `is_live`: whether a share-partition is still in the cache. Work on one that was dropped is forgotten, because a
    drop leaves nothing to do.
    """

    def __init__(self, is_live: Callable[[SharePartitionHost], bool]) -> None:
        self._is_live = is_live
        self._due: dict[SharePartitionHost, list[Work]] = {}
        self._order: deque[SharePartitionHost] = deque()
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, hosts: Iterable[SharePartitionHost], work: Work) -> None:
        """Do `work` on each: at once when there are few, else a slice per turn of the event loop."""
        hosts = list(hosts)
        if len(hosts) <= SLICE:
            for host in hosts:
                self.settle(host)
                if self._is_live(host):
                    work(host)
            return
        for host in hosts:
            due = self._due.get(host)
            if due is None:
                self._due[host] = [work]
                self._order.append(host)
            else:
                due.append(work)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="share-partitions-later")

    def settle(self, host: SharePartitionHost) -> None:
        """Do now what is due on this share-partition."""
        for work in self._due.pop(host, ()):
            if self._is_live(host):
                work(host)

    async def close(self) -> None:
        """Forget all work that is still due, and end the task."""
        self._due.clear()
        self._order.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        turns = Turns(SLICE)
        try:
            while self._order:
                try:
                    self.settle(self._order.popleft())
                except Exception:  # the other share-partitions must be worked on all the same
                    log.exception("share_partition_work_failed")
                await turns.step()
        finally:
            self._task = None
