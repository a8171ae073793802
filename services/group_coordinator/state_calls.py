"""Carries out group shards' orders about share-partition state, and returns the outcomes to them as commands.

An order comes only after its records are durable (GC-24i). Its outcome may be late or lost: the shard recognises an old
outcome by its attempt number (GC-76a), and uses its lists to retry an order without an outcome (GC-72, OP-6). So this
module only remembers which requests wait, and cancelling a call is always safe. It puts calls in order in one case:
state is deleted only after the calls that initialise it have ended (GC-99).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from group_coordinator.admin_outcomes import AdminOutcomes
from group_coordinator.core import commands as c
from group_coordinator.metrics import GroupCoordinatorMetrics
from group_coordinator.ports import Shards
from kip932.errors import (
    CoordinatorNotAvailableError,
    FencedStateEpochError,
    KafkaError,
    NotCoordinatorError,
    UnknownServerError,
)
from kip932.ids import TopicIdPartition
from kip932.state_values import StateSummary
from share_persister.values import Persister, PersisterError

log = structlog.get_logger(__name__)

CONCURRENT_CALLS: Final = 64
WAITING_CALLS_MAX: Final = 10_000
Outcome = PersisterError | None
#: How long an order of an administrator's call may take, in seconds, including its wait for a slot (GC-108).
ADMIN_ORDER_S: Final = 40.0


class StateCalls:
    """Runs at most `CONCURRENT_CALLS` orders at a time. At `WAITING_CALLS_MAX` running or waiting orders it refuses
    further ones, which are retried later."""

    def __init__(
        self,
        persister: Persister,
        shards: Shards,
        meter: GroupCoordinatorMetrics,
        outcomes: AdminOutcomes | None = None,
        *,
        sweep_soon: Callable[[], None] = lambda: None,
        expired: Callable[[c.MemberExpired], None] = lambda _: None,
    ) -> None:
        self._persister = persister
        self._shards = shards
        self._meter = meter
        self._outcomes = outcomes or AdminOutcomes()
        self._sweep_soon = sweep_soon
        self._expired = expired
        self._slots = asyncio.Semaphore(CONCURRENT_CALLS)
        self._tasks: dict[asyncio.Task[None], int] = {}
        #: The initialisations that wait or run, by group.
        self._initializing: dict[str, dict[asyncio.Task[None], c.InitializeState]] = {}

    def run(self, shard: int, effects: Sequence[object]) -> None:
        """Start the orders of one durable decision. Never blocks, never raises."""
        for effect in effects:
            if isinstance(effect, c.SweepSoon):
                self._sweep_soon()
                continue
            if isinstance(effect, c.MemberExpired):
                self._expired(effect)
                continue
            if len(self._tasks) >= WAITING_CALLS_MAX:
                log.warning(
                    "state_call_limit_reached", order=type(effect).__name__, effect="the order is retried later"
                )
                busy = CoordinatorNotAvailableError("too many calls about share state already wait here; try again")
                self._outcomes.failed(_call_id(effect), busy)
                continue
            before = self._that_initialize(effect) if isinstance(effect, c.DeleteState) else []
            task = asyncio.get_running_loop().create_task(self._guarded(shard, effect, before))
            self._tasks[task] = shard
            if isinstance(effect, c.InitializeState):
                self._initializing.setdefault(effect.group_id, {})[task] = effect
            task.add_done_callback(partial(self._over, effect))

    def drop(self, shard: int) -> None:
        """Cancel the calls of a lost shard; the new owner repeats what is still in the lists (GC-69d, CM-12)."""
        for task, owner in list(self._tasks.items()):
            if owner == shard:
                task.cancel()

    async def close(self) -> None:
        """Cancel all calls and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _over(self, effect: object, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if isinstance(effect, c.InitializeState):
            of_group = self._initializing[effect.group_id]
            del of_group[task]
            if not of_group:
                del self._initializing[effect.group_id]
        if task.cancelled():
            moved = NotCoordinatorError("the group is moving to another node; repeat the call there")
            self._outcomes.failed(_call_id(effect), moved)

    def _that_initialize(self, order: c.DeleteState) -> list[asyncio.Task[None]]:
        """Return the calls that initialise some of the state to delete. Such a call may still be repeated (GC-74), and
        then creates the state again although it was deleted (GC-99)."""
        calls = self._initializing.get(order.group_id, {})
        deleted = frozenset(order.partitions) if calls else frozenset()
        return [task for task, call in calls.items() if not deleted.isdisjoint(dict(call.partitions))]

    async def _guarded(self, shard: int, effect: object, before: Collection[asyncio.Task[None]] = ()) -> None:
        """Carry out an order once the calls `before` have ended; they hold slots, so it takes its own after them."""
        try:
            async with asyncio.timeout(ADMIN_ORDER_S if _attempt(effect) else None):
                if before:
                    await asyncio.wait(before)
                async with self._slots:
                    await self._perform(shard, effect)
        except KafkaError as error:
            log.info(
                "state_call_outcome_unrecorded",
                order=type(effect).__name__,
                cause=str(error),
                effect="the order is retried",
            )
            failure = error
        except TimeoutError:
            log.warning("state_call_timed_out", order=type(effect).__name__, effect="the order is retried")
            failure = CoordinatorNotAvailableError(
                f"the share coordinators did not answer within {ADMIN_ORDER_S:.0f} s; repeat the call"
            )
        except Exception as error:
            log.exception("state_call_failed", order=type(effect).__name__, effect="the order is retried")
            failure = UnknownServerError(f"the call about share state failed: {type(error).__name__}")
        else:
            return
        self._outcomes.failed(_call_id(effect), failure)
        if isinstance(effect, c.InitializeState | c.DeleteState) and (attempt := _attempt(effect)):
            with contextlib.suppress(KafkaError):
                await self._shards.submit(shard, c.CallEnded(effect.group_id, attempt))

    def _perform(self, shard: int, effect: object) -> Coroutine[Any, Any, None]:
        match effect:
            case c.InitializeState():
                return self._initialize(shard, effect)
            case c.DeleteState():
                return self._delete(shard, effect)
            case c.CheckSummaries():
                return self._check(shard, effect)
        raise TypeError(f"no such order: {type(effect).__name__}")

    async def _initialize(self, shard: int, order: c.InitializeState) -> None:
        wanted = dict(order.partitions)
        outcomes = _of_each(wanted, await self._persister.initialize(order.group_id, order.state_epoch, wanted))
        succeeded, failed, fenced = [], [], []
        for partition in wanted:
            match outcomes[partition]:
                case None:
                    succeeded.append(partition)
                case PersisterError(error=FencedStateEpochError()):
                    fenced.append(partition)
                case PersisterError(outcome_unknown=False):
                    failed.append(partition)
                case _:  # unknown outcome: the partition stays in initialising and is requested again (GC-72)
                    pass
        stored_epoch = await self._largest_epoch(order.group_id, fenced) if fenced else -1
        refused = len(wanted) - len(succeeded)
        self._meter.initialized(len(succeeded), refused)
        if refused:
            first = next((error for error in outcomes.values() if error is not None), None)
            log.warning("state_initialization_failed", group=order.group_id, partitions=refused, first_error=str(first))
        if stored_epoch < 0 and order.call_id:
            failed += fenced  # an administrator's call ends with the refusal as its result (GC-103)
        if succeeded or failed or stored_epoch >= 0 or order.call_id:
            result = c.InitializationFinished(
                order.group_id,
                order.attempt,
                tuple(succeeded),
                tuple(failed),
                tuple(fenced) if stored_epoch >= 0 else (),
                stored_epoch,
                order.fenced_rounds,
                order.call_id,
            )
            again = await self._shards.submit(shard, result)
            self._outcomes.answered(order.call_id, outcomes, last=not again)

    async def _largest_epoch(self, group_id: str, partitions: Collection[TopicIdPartition]) -> int:
        """The largest stored state epoch; −1 when no summary could be read (GC-76)."""
        summaries = await self._persister.summary(group_id, partitions)
        return max((found.state_epoch for found in summaries.values() if isinstance(found, StateSummary)), default=-1)

    async def _delete(self, shard: int, order: c.DeleteState) -> None:
        partitions = dict.fromkeys(order.partitions, order.state_epoch)
        if order.attempt and not order.call_id:
            log.info(
                "group_deletion_resumed",
                group=order.group_id,
                partitions=len(partitions),
                effect="no caller waits for its outcome",
            )
        outcomes = _of_each(partitions, await self._persister.delete(order.group_id, partitions))
        failed = {partition: error for partition, error in outcomes.items() if error is not None}
        if failed:
            log.info("state_deletion_failed", group=order.group_id, first_error=str(next(iter(failed.values()))))
        # An order without an attempt is best effort: the share coordinator also drops a deleted topic's state (OP-5).
        if order.attempt:
            topics = frozenset(partition.topic_id for partition in failed)
            fenced = [key for key, error in failed.items() if isinstance(error.error, FencedStateEpochError)]
            stored_epoch = await self._largest_epoch(order.group_id, fenced) if fenced else -1
            finished = c.DeletionFinished(order.group_id, order.attempt, topics, stored_epoch)
            await self._shards.submit(shard, finished)
            self._outcomes.answered(order.call_id, outcomes)

    async def _check(self, shard: int, order: c.CheckSummaries) -> None:
        summaries = await self._persister.summary(order.group_id, order.partitions)
        if order.watched:
            await self._submit_progress(shard, order, summaries)
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
                "share_state_lost",
                cause="the share coordinator no longer has state that was initialised",
                effect="delivery starts again from the log start",
                group=order.group_id,
                partitions=[partition.text for partition in lost[:10]],
                count=repaired,
            )

    async def _submit_progress(
        self, shard: int, order: c.CheckSummaries, summaries: Mapping[TopicIdPartition, StateSummary | PersisterError]
    ) -> None:
        """Submit an empty group's progress, unless a summary could not be read (GC-46)."""
        found = [
            (partition, summary.start_offset, summary.delivery_complete_count)
            for partition in order.partitions
            if isinstance(summary := summaries.get(partition), StateSummary)
        ]
        if len(found) == len(order.partitions):
            await self._shards.submit(shard, c.ProgressSeen(order.group_id, order.group_epoch, tuple(found)))


def _call_id(effect: object) -> int:
    return effect.call_id if isinstance(effect, c.InitializeState | c.DeleteState) else 0


def _attempt(effect: object) -> int:
    """The attempt of an order that belongs to a change by an administrator; else 0."""
    match effect:
        case c.DeleteState():
            return effect.attempt
        case c.InitializeState(call_id=call_id) if call_id:
            return effect.attempt
    return 0


def _of_each(
    wanted: Collection[TopicIdPartition], found: Mapping[TopicIdPartition, Outcome]
) -> dict[TopicIdPartition, Outcome]:
    """The outcome for each partition; one that the response lacks is unknown, never a success."""
    return {partition: found.get(partition, _UNANSWERED) for partition in wanted}


_UNANSWERED: Final = PersisterError(UnknownServerError("the share coordinator did not answer"), outcome_unknown=True)
