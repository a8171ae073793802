"""Group commit of one topic log: one flush in flight; operations that arrive meanwhile form the next (CM-42, P-9).

No flush waits for a timer. It ends in one of three ways: it is confirmed; it is refused, undone, and its ids are free
again; or its outcome is unknown: the log ends, its waiting callers get NOT_LEADER_OR_FOLLOWER, and the owner claims
again (CM-13). At its timeout a caller gets REQUEST_TIMED_OUT; its batches may still be committed (CM-15). After the
lease's deadline no caller gets an offset (CM-3).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from kip932.armed_timer import ArmedTimer
from kip932.errors import (
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from partition_leader.topic_log.operations import NO_DEADLINE, Draft, LogOperation, ProduceOperation, form_draft
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.state import AppendOutcome, LogState
from shard_runtime.clock import Clock
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import Appended, AppendRefusedError, RecordLog, StreamDeletedError
from shard_runtime.record_log.store_room import Charge, StoreFullError, StoreRoom
from shard_runtime.tracing import tracing

#: Called with what was written, and how long its append took, ms.
Committed = Callable[[Draft, int], None]
Lost = Callable[[KafkaError, BaseException], None]
#: Called when writes are refused, with the number of their records and the error that their callers get.
Refused = Callable[[int, KafkaError], None]


class StoreNearlyFullError(KafkaStorageError):
    """The store takes no more records, so that what it holds can be finished and deleted (CM-214)."""


class GroupCommit:
    """The only writer of a topic's streams under this epoch."""

    __slots__ = (
        "_clock",
        "_committed",
        "_error",
        "_lease",
        "_log",
        "_lost",
        "_queue",
        "_queued_bytes",
        "_refusal",
        "_room",
        "_settings",
        "_state",
        "_task",
        "_timer",
        "in_flight",
    )

    def __init__(
        self,
        record_log: RecordLog,
        state: LogState,
        lease: Lease,
        clock: Clock,
        *,
        settings: TopicLogSettings,
        committed: Committed,
        lost: Lost,
        refused: Refused,
        room: StoreRoom,
    ) -> None:
        self._log = record_log
        self._room = room
        self._state = state
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._committed = committed
        self._lost = lost
        self._refusal = refused
        self._queue: deque[LogOperation] = deque()
        self._queued_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._timer = ArmedTimer(self._expire)
        self._error: KafkaError | None = None
        self.in_flight: Draft | None = None

    def check_open(self) -> None:
        """Raise the error with which the log was closed, or NOT_LEADER_OR_FOLLOWER while the lease is not valid
        (CM-3)."""
        if self._error is not None:
            raise again(self._error)
        if not self._lease.valid():
            raise NotLeaderOrFollowerError(
                f"this node's lease on {self._state.shard.name} has lapsed; clients look up the leader and try again"
            )

    def submit(self, operation: LogOperation) -> None:
        """Queue an operation for the next flush that has room. Raises KafkaError if it is refused at once."""
        self.check_open()
        name = self._state.shard.name
        if not self._log.available_for(self._state.shard):
            raise self._reported(
                [operation],
                NotEnoughReplicasError(f"{name}: the store cannot confirm writes now; nothing was written, try again"),
            )
        if operation.size and self._queued_bytes + operation.size > self._settings.queue_max_bytes:
            raise self._reported(
                [operation],
                KafkaStorageError(
                    f"{name}: {self._queued_bytes} bytes of batches wait to be written and {operation.size} more would "
                    f"pass the limit of {self._settings.queue_max_bytes}; nothing was written, try again"
                ),
            )
        charge = self._taken(operation) if isinstance(operation, ProduceOperation) else None
        if charge is not None:
            operation.future.add_done_callback(charge)
        self._queue.append(operation)
        self._queued_bytes += operation.size
        self._arm(operation.deadline_ms)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"topic-log-flush {name}")

    def _taken(self, operation: ProduceOperation) -> Charge | None:
        """Take room in the store for batches. Raises StoreNearlyFullError."""
        try:
            return self._room.take(self._state.main, operation.size, len(operation.batches))
        except StoreFullError as error:
            full = StoreNearlyFullError(f"{self._state.shard.name}: {error}")
        raise self._reported([operation], full)

    def close(self, error: KafkaError) -> None:
        """Refuse new operations; waiting callers get `error`. The outcome of a flush in flight stays unknown."""
        if self._error is not None:
            return
        self._error = error
        self._timer.cancel()
        waiting = list(self._queue)
        self._queue.clear()
        if self.in_flight is not None:
            waiting[:0] = self.in_flight.operations
        for operation in waiting:
            operation.fail(error)
        self._queued_bytes = 0

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is queued or in flight; return False after `timeout_s`. Stop submitting before calling
        this."""
        task = self._task
        if task is None:
            return True
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        return bool(done)

    async def stop(self) -> None:
        """End the flushing task; call it after `close`. The outcome of its append stays unknown."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        try:
            while self._queue and self._error is None:
                draft = form_draft(self._state, self._queue, self._settings, self._clock.wall_ms())
                for operation in draft.operations:
                    self._queue.popleft()
                    operation.sent = True
                await self._flush(draft)
        except Exception as error:  # memory and log may differ now, so give up the partition
            self._give_up(error)
        finally:
            self._task = None

    async def _flush(self, draft: Draft) -> None:
        refused = [operation for operation in draft.operations if operation.outcome.error is not None]
        for operation in refused:
            self._settle(operation, operation.outcome)
        if refused:
            draft.operations = [operation for operation in draft.operations if operation.outcome.error is None]
        if not draft.empty:
            self.in_flight = draft
            started_ms = self._clock.now_ms()
            try:
                appended = await self._append(draft)
            except AppendRefusedError as error:
                self.in_flight = None
                self._refused(draft, error)
                return
            if self._error is not None:
                return  # closed during the append: all callers have been answered
            self.in_flight = None
            self._apply(draft, appended, self._clock.now_ms() - started_ms)
        for operation in draft.operations:
            self._settle(operation, operation.outcome)

    async def _append(self, draft: Draft) -> Appended:
        state = self._state
        if not tracing.on:
            return await self._log.append(state.shard, state.epoch, draft.appends())
        entries = len(draft.main) + len(draft.control)
        with tracing.append((operation.span for operation in draft.operations), state.shard.name, entries):
            return await self._log.append(state.shard, state.epoch, draft.appends())

    def _apply(self, draft: Draft, appended: Appended, elapsed_ms: int) -> None:
        state = self._state
        state.control_seq = max(appended.tip.seq, state.control_seq) if appended.tip.epoch == state.epoch else 0
        state.control_entries += len(draft.control) + appended.noops
        self._committed(draft, elapsed_ms)

    def _refused(self, draft: Draft, error: AppendRefusedError) -> None:
        """Undo a flush that the store refused, and refuse all queued operations as well. Otherwise a producer's next
        batch would be checked before its refused one is sent again."""
        draft.roll_back()
        waiting = [*draft.operations, *self._queue]
        self._queue.clear()
        answer = self._reported(waiting, refusal(self._state.shard.name, error))
        for operation in waiting:
            self._settle(operation, AppendOutcome((), -1, -1, answer))

    def _reported(self, operations: Iterable[LogOperation], error: KafkaError) -> KafkaError:
        """Count and log that these operations were refused; return `error`."""
        produced = [operation for operation in operations if isinstance(operation, ProduceOperation)]
        self._refusal(sum(batch.record_count for operation in produced for batch in operation.batches), error)
        return error

    def _settle(self, operation: LogOperation, outcome: AppendOutcome) -> None:
        self._queued_bytes = max(self._queued_bytes - operation.size, 0)
        if outcome.error is None and not self._lease.valid():
            lapsed = "this node's lease has lapsed; clients look up the leader and try again"
            operation.fail(NotLeaderOrFollowerError(lapsed))
        else:
            operation.answer(outcome)

    def _give_up(self, error: BaseException) -> None:
        if isinstance(error, StreamDeletedError):
            answer: KafkaError = UnknownTopicOrPartitionError(f"{self._state.shard.name} was deleted")
        else:
            answer = NotLeaderOrFollowerError(
                f"this node no longer leads {self._state.shard.name} ({error}); the batches may have been written: "
                "clients look up the leader and try again"
            )
        self._lost(answer, error)

    def _arm(self, deadline_ms: int) -> None:
        if deadline_ms != NO_DEADLINE and deadline_ms < self._timer.at:
            self._timer.arm(deadline_ms, max(deadline_ms - self._clock.now_ms(), 1) / 1000)

    def _expire(self) -> None:
        now_ms = self._clock.now_ms()
        sent = self.in_flight.operations if self.in_flight is not None else []
        for operation in sent:
            if operation.deadline_ms <= now_ms:
                operation.fail(RequestTimedOutError("the store did not confirm in time; it may still be written"))
        expired = [operation for operation in self._queue if operation.deadline_ms <= now_ms]
        for operation in expired:
            self._queue.remove(operation)
            self._settle(operation, AppendOutcome((), -1, -1, RequestTimedOutError("not written: the queue was long")))
        self._arm(min((op.deadline_ms for op in (*sent, *self._queue) if not op.future.done()), default=NO_DEADLINE))


def again(error: KafkaError) -> KafkaError:
    """Return a copy of an error to raise: one exception that is raised many times would collect all the tracebacks."""
    return type(error)(error.message)


def refusal(name: str, error: AppendRefusedError) -> KafkaError:
    """Return the error for a producer whose write the store refused: NOT_ENOUGH_REPLICAS (19) for too few replicas,
    else a storage error."""
    kind = NotEnoughReplicasError if "NOREPLICAS" in str(error) else KafkaStorageError
    return kind(f"{name}: the store refused the write ({error}); nothing was written, try again")
