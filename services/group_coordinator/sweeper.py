"""Every 30 s and on topic changes: drop what is gone from the groups' lists, look for lost state (GC-80, GC-82).

A lagging image must never delete state: the end of the metadata log is read *after* a shard was loaded, the sweep says
so, and the shard refuses it while its image is older. A shard that was loaded again meanwhile waits for the next sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from group_coordinator.core.commands import RepairCheck, Sweep, SweepReply
from group_coordinator.core.shard import GroupShard
from group_coordinator.doors import Shards
from kip932.errors import KafkaError

log = structlog.get_logger(__name__)

_ROUNDS_MAX: Final = 100


class Sweeper:
    """One task; `metadata_end` answers the newest version in the metadata log, None when it cannot tell."""

    def __init__(
        self,
        shards: Shards,
        metadata_end: Callable[[], Awaitable[int | None]],
        interval_ms: int,
    ) -> None:
        self._shards = shards
        self._metadata_end = metadata_end
        self._interval_ms = interval_ms
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sweeping."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def topics_changed(self) -> None:
        """The image has changed: sweep soon. Changes that arrive during a sweep make one more."""
        self._changed.set()

    async def stop(self) -> None:
        """Stop and wait for the end of what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                await self.sweep()
            except Exception:
                log.exception("sweep failed; it is repeated")

    async def sweep(self) -> None:
        """One sweep over all shards served here."""
        serving = self._shards.serving()
        end = await self._metadata_end() if serving else None
        if end is None:
            return
        for index, shard in serving:
            try:
                await self._sweep_shard(index, shard, end)
            except KafkaError as error:
                log.debug("shard not swept", shard=index, why=str(error))

    async def _sweep_shard(self, index: int, shard: GroupShard, end: int) -> None:
        for _ in range(_ROUNDS_MAX):
            if dict(self._shards.serving()).get(index) is not shard:
                return
            reply = await self._shards.submit(index, Sweep(end))
            if not (isinstance(reply, SweepReply) and reply.more):
                break
        await self._shards.submit(index, RepairCheck())
