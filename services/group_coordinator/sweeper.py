"""Every 30 s and on topic changes: drop deleted topics from the groups' lists, check for lost state, and go on with
interrupted deletions (GC-80, GC-82, OP-6).

An old image must never delete state. So each sweep carries the time since when the image is complete, and a shard
refuses the sweep unless that is later than its own load.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from group_coordinator.core.commands import RepairCheck, ResumeDeletions, ResumeReply, Sweep, SweepReply
from group_coordinator.ports import Shards
from kip932.errors import KafkaError

log = structlog.get_logger(__name__)

_ROUNDS_MAX: Final = 100
#: How soon to sweep again while a deletion waits only for the image to be known as new enough.
_SOON_S: Final = 1.0


class Sweeper:
    """One task. `complete_since_ms` gives since when (deadline clock) the image is complete; −1 when it is not."""

    def __init__(self, shards: Shards, complete_since_ms: Callable[[], int], interval_ms: int) -> None:
        self._shards = shards
        self._complete_since_ms = complete_since_ms
        self._interval_ms = interval_ms
        self._changed = asyncio.Event()
        self._waiting = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start sweeping."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def topics_changed(self) -> None:
        """The image has changed: sweep soon. Changes that arrive during a sweep cause one more."""
        self._changed.set()

    def soon(self) -> None:
        """A shard was loaded with interrupted deletions: sweep soon, and each second until the image is new enough
        (OP-6)."""
        self._changed.set()

    async def stop(self) -> None:
        """Stop, and wait until the present sweep has ended."""
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
        """Sweep all shards served here; a shard that fails is swept next time."""
        for index, _ in self._shards.serving():
            try:
                await self._sweep_shard(index)
            except KafkaError as error:
                log.debug("shard not swept", shard=index, why=str(error))
            except Exception:
                log.exception("sweep failed; it is repeated", shard=index)

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
