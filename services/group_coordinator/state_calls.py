"""Carries out group shards' orders about share-partition state, and returns the outcomes to them as commands.

An order comes only after its records are durable (GC-24i). Its outcome may be late, or lost: by the attempt number the
shard recognises an old outcome (GC-76a), and it retries from its lists what never comes back (GC-72). So this module
remembers nothing, and cancelling a call is always safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Final, Protocol

import structlog

from group_coordinator.core import commands as c
from group_coordinator.ports import Shards
from kip932.errors import FencedStateEpochError, KafkaError
from kip932.ids import TopicIdPartition
from kip932.state_values import StateSummary
from share_persister.values import Persister, PersisterError, StateInit

log = structlog.get_logger(__name__)

CONCURRENT_CALLS: Final = 64
WAITING_CALLS_MAX: Final = 10_000


class CallMeter(Protocol):
    """Counts state calls."""

    def initialized(self, succeeded: int, failed: int) -> None:
        """One initialisation call ended."""
        ...

    def repaired(self, partitions: int) -> None:
        """The share coordinator had lost the state of `partitions` partitions (GC-82)."""
        ...


class StateCalls:
    """Runs at most `CONCURRENT_CALLS` orders at a time; when `WAITING_CALLS_MAX` wait, further ones are left to their
    retry."""

    def __init__(self, persister: Persister, shards: Shards, meter: CallMeter) -> None:
        self._persister = persister
        self._shards = shards
        self._meter = meter
        self._slots = asyncio.Semaphore(CONCURRENT_CALLS)
        self._tasks: dict[asyncio.Task[None], int] = {}

    def run(self, shard: int, effects: Sequence[object]) -> None:
        """Start the orders of one durable decision. Never blocks, never raises."""
        for effect in effects:
            if len(self._tasks) >= WAITING_CALLS_MAX:
                log.warning("too many state calls wait; the order is left to its retry", order=type(effect).__name__)
                continue
            task = asyncio.get_running_loop().create_task(self._guarded(shard, effect))
            self._tasks[task] = shard
            task.add_done_callback(self._tasks.pop)

    def drop(self, shard: int) -> None:
        """The shard is lost: cancel its calls; the new owner repeats what is still in the lists (GC-69d, CM-12)."""
        for task, owner in list(self._tasks.items()):
            if owner == shard:
                task.cancel()

    async def close(self) -> None:
        """Cancel all calls and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(self, shard: int, effect: object) -> None:
        try:
            async with self._slots:
                await self._perform(shard, effect)
        except KafkaError as error:
            log.info("outcome not recorded; it is retried", order=type(effect).__name__, why=str(error))
        except Exception:
            log.exception("state call failed; it is retried", order=type(effect).__name__)

    def _perform(self, shard: int, effect: object) -> Coroutine[Any, Any, None]:
        match effect:
            case c.InitializeState():
                return self._initialize(shard, effect)
            case c.DeleteState():
                return self._delete(effect)
            case c.CheckSummaries():
                return self._check(shard, effect)
        raise TypeError(f"no such order: {type(effect).__name__}")

    async def _initialize(self, shard: int, order: c.InitializeState) -> None:
        wanted = {partition: StateInit(order.state_epoch, offset) for partition, offset in order.partitions}
        outcomes = await self._persister.initialize(order.group_id, wanted)
        succeeded, failed, fenced = [], [], []
        for partition in wanted:
            match outcomes.get(partition, _MISSING):
                case None:
                    succeeded.append(partition)
                case PersisterError(error=FencedStateEpochError()):
                    fenced.append(partition)
                case PersisterError(outcome_unknown=False):
                    failed.append(partition)
                case _:  # an unknown outcome: it stays in initialising and is requested again (GC-72)
                    pass
        stored_epoch = await self._largest_epoch(order.group_id, fenced) if fenced else -1
        refused = len(wanted) - len(succeeded)
        self._meter.initialized(len(succeeded), refused)
        if refused:
            first = next((error for error in outcomes.values() if error is not None), None)
            log.warning("share-partitions not initialised", group=order.group_id, partitions=refused, first=str(first))
        if succeeded or failed or stored_epoch >= 0:
            result = c.InitializationFinished(
                order.group_id,
                order.attempt,
                tuple(succeeded),
                tuple(failed),
                tuple(fenced) if stored_epoch >= 0 else (),
                stored_epoch,
                order.fenced_rounds,
            )
            await self._shards.submit(shard, result)

    async def _largest_epoch(self, group_id: str, partitions: Collection[TopicIdPartition]) -> int:
        """The largest stored state epoch; −1 when no summary could be read (GC-76)."""
        summaries = await self._persister.summary(group_id, partitions)
        return max((found.state_epoch for found in summaries.values() if isinstance(found, StateSummary)), default=-1)

    async def _delete(self, order: c.DeleteState) -> None:
        partitions = dict.fromkeys(order.partitions, order.state_epoch)
        outcomes = await self._persister.delete(order.group_id, partitions)
        # Best effort: the share coordinator also drops the state of a deleted topic by itself (OP-5).
        if failed := [error for error in outcomes.values() if error is not None]:
            log.info("state of a deleted topic not deleted", group=order.group_id, first=str(failed[0]))

    async def _check(self, shard: int, order: c.CheckSummaries) -> None:
        summaries = await self._persister.summary(order.group_id, order.partitions)
        lost = tuple(
            partition
            for partition in order.partitions
            if isinstance(found := summaries.get(partition), StateSummary) and found.state_epoch == 0
        )
        if not lost:
            return
        repaired = await self._shards.submit(shard, c.Repair(order.group_id, order.group_epoch, lost))
        if isinstance(repaired, int) and repaired:
            self._meter.repaired(repaired)
            log.error(
                "the share coordinator has lost state that was initialised; delivery starts again from the log start",
                group=order.group_id,
                partitions=[partition.text for partition in lost[:10]],
                count=repaired,
            )


_MISSING: Final = object()
