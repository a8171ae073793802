"""Sweeps every 30 s and on topic changes: drops deleted topics from the groups' lists, checks for lost state, resumes
interrupted deletions, and starts deleting groups that have been empty for too long (GC-46, GC-80, GC-82, OP-6).

An old image must never cause a deletion of state. So each sweep carries the time since which the image has been
complete, and a shard refuses the sweep when that time is before its own load.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from group_coordinator.core.commands import ExpireEmpty, RepairCheck, ResumeDeletions, ResumeReply, Sweep, SweepReply
from group_coordinator.ports import Shards
from kip932.errors import KafkaError
from shard_runtime.config.kafka_configs import EMPTY_RETENTION_MS

log = structlog.get_logger(__name__)

_ROUNDS_MAX: Final = 100
#: How soon to sweep again, in seconds, while a deletion waits until the image is known to be new enough.
_SOON_S: Final = 1.0


class Sweeper:
    """Runs the sweeps in one task. `complete_since_ms` returns the time (deadline clock) since which the image has been
    complete; −1 when it is not. `expired` counts groups whose deletion began because they were empty for too long.
    `after_sweep` is called after each sweep."""

    def __init__(
        self,
        shards: Shards,
        complete_since_ms: Callable[[], int],
        interval_ms: int,
        expired: Callable[[int], None] = lambda _: None,
        after_sweep: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._shards = shards
        self._complete_since_ms = complete_since_ms
        self._interval_ms = interval_ms
        self._expired = expired
        self._after_sweep = after_sweep
        self._changed = asyncio.Event()
        self._waiting = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sweeping."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def topics_changed(self) -> None:
        """Sweep soon, because the image has changed. Changes during a sweep cause one more."""
        self._changed.set()

    def soon(self) -> None:
        """Sweep soon, because a shard was loaded with interrupted deletions, and then every second until the image is
        new enough (OP-6)."""
        self._changed.set()

    async def stop(self) -> None:
        """Cancel the sweeps, and wait until the task has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                interval_s = self._interval_ms / 1000
                async with asyncio.timeout(min(interval_s, _SOON_S) if self._waiting else interval_s):
                    await self._changed.wait()
            self._changed.clear()
            self._waiting = False
            await self.sweep()

    async def sweep(self) -> None:
        """Sweep all shards served here; a shard whose sweep fails is swept again next time."""
        for index, _ in self._shards.serving():
            try:
                await self._sweep_shard(index)
            except KafkaError as error:
                log.debug("shard_sweep_deferred", shard=index, cause=str(error))
            except Exception:
                log.exception("shard_sweep_failed", shard=index, effect="the shard is swept again next time")
        if self._after_sweep is not None:
            await self._after_sweep()

    async def _sweep_shard(self, index: int) -> None:
        for _ in range(_ROUNDS_MAX):
            reply = await self._shards.submit(index, Sweep(self._complete_since_ms()))
            if not (isinstance(reply, SweepReply) and reply.more):
                break
        await self._shards.submit(index, RepairCheck())
        for _ in range(_ROUNDS_MAX):
            resumed = await self._shards.submit(index, ResumeDeletions(self._complete_since_ms()))
            assert isinstance(resumed, ResumeReply)
            self._waiting |= resumed.waiting
            if not resumed.more:
                break
        await self._expire(index)

    async def _expire(self, index: int) -> None:
        """Make one round per sweep, so that the shard stays free for its members however many groups are due."""
        expired = await self._shards.submit(index, ExpireEmpty(self._complete_since_ms()))
        assert isinstance(expired, tuple)
        for group_id, age_ms in expired:
            log.info(
                "group_expired",
                effect="the group is deleted with its offsets",
                group=group_id,
                empty_for_s=age_ms // 1000,
                setting=EMPTY_RETENTION_MS.name,
            )
        self._expired(len(expired))
