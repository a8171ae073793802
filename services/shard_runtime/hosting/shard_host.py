"""Runs one pure shard over its durable log: load, then decide, replay, append in batches, answer (SC-59…65, GC-2…6).

The host owns everything that waits: the door, the flush in flight, the one armed timer, the lease gate. It never
decides anything about groups or share state, and it never claims or renews: that is `ownership`.

Schedules it is built for: an answer is given only after the append that it rests on is durable, and only while the
lease is valid (CM-3, SR-24). A definite refusal is undone in reverse order (CM-13); whatever is unsure drops the shard
with its parked answers, and ownership claims it again. A caller's write time-out rolls nothing back (SC-63).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic

import structlog

from kip932.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    UnknownServerError,
)
from shard_runtime.clock import Clock
from shard_runtime.hosting.compaction_steps import copy_next_slice, trim
from shard_runtime.hosting.deadline_timer import DeadlineTimer
from shard_runtime.hosting.host_options import HostMeter, HostOptions, HostState, NoMeter
from shard_runtime.hosting.kafka_errors import FailureMapping, coordinator_failure
from shard_runtime.hosting.replay import replay_log
from shard_runtime.hosting.shard import Codec, CommandT, RecordT, Shard
from shard_runtime.hosting.shard_tenure import FlushBatch, Holding, Operation
from shard_runtime.ownership.lease import Lease
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.record_log.protocol import (
    Appended,
    AppendRefusedError,
    Claimed,
    RecordLog,
    ShardId,
    ShardLostError,
    StreamAppend,
    StreamId,
)

__all__ = ["HostMeter", "HostOptions", "HostState", "NoMeter", "ShardHost"]

log = structlog.get_logger(__name__)

_RECHECK_MS: Final = 1_000
_DUE_STEP_MS: Final = 10


class ShardHost(Generic[CommandT, RecordT]):
    """One shard's host. It lives as long as the process; the shard comes with `gained` and goes with `lost`.

    `new_shard` makes an empty shard for each holding. `effects` receives the effects of one durable decision, in
    order; `dropped` tells that the shard is gone, so that outgoing calls made for it can be cancelled. Both run on the
    event loop and must not block; their exceptions are logged.
    """

    def __init__(
        self,
        shard_id: ShardId,
        new_shard: Callable[[], Shard[CommandT, RecordT]],
        codec: Codec[RecordT],
        record_log: RecordLog,
        clock: Clock,
        *,
        effects: Callable[[Sequence[object]], None] | None = None,
        dropped: Callable[[], None] | None = None,
        failures: FailureMapping = coordinator_failure,
        options: HostOptions | None = None,
        meter: HostMeter | None = None,
    ) -> None:
        self.shard_id = shard_id
        self.state = HostState.IDLE
        self._new_shard = new_shard
        self._codec = codec
        self._log = record_log
        self._clock = clock
        self._effects = effects
        self._dropped = dropped
        self._failures = failures
        self._options = options or HostOptions()
        self._meter: HostMeter = meter or NoMeter()
        self._stream = shard_id.streams[0]
        self._holding: Holding[CommandT, RecordT] | None = None
        self._timer = DeadlineTimer(clock, self._on_timer)
        self._demand = 0
        self._faults = RateLimitedLog(log)

    # ---- the door

    @property
    def shard(self) -> Shard[CommandT, RecordT] | None:
        """The shard while it is served here, for metrics and overviews; what it shows may not be durable yet."""
        return self._holding.shard if self._holding and self.state is HostState.ACTIVE else None

    @property
    def waiting(self) -> int:
        """Operations that wait for a commit."""
        return self._holding.waiting if self._holding else 0

    async def submit(self, command: CommandT, timeout_ms: int | None = None) -> object:
        """Run a command; its reply, once everything it rests on is durable. Raises KafkaError.

        After `timeout_ms` (default `write_timeout_ms`) the caller gets COORDINATOR_NOT_AVAILABLE and nothing is rolled
        back: the records may commit later (SC-63).
        """
        future = self.post(command)
        if future.done():
            return future.result()
        limit_ms = self._options.write_timeout_ms if timeout_ms is None else timeout_ms
        handle = asyncio.get_running_loop().call_later(limit_ms / 1000, _expire, future, limit_ms)
        try:
            return await future
        finally:
            handle.cancel()

    def post(self, command: CommandT) -> asyncio.Future[object]:
        """Decide and replay now; the future ends with the reply or a KafkaError once that is durable.

        Raises KafkaError when the command is not taken at all: GC-6 states, CM-15, a full inbox.
        """
        holding = self._admit()
        operation = Operation(asyncio.get_running_loop().create_future())
        self._execute(holding, command, operation)
        assert operation.future is not None
        return operation.future

    def tell(self, command: CommandT) -> bool:
        """Run a command that nobody waits for (a timer's, an effect's outcome). False: it was not taken."""
        try:
            holding = self._admit()
        except KafkaError as error:
            log.debug("command not taken", shard=str(self.shard_id.tag), command=type(command).__name__, why=str(error))
            return False
        self._execute(holding, command, Operation(None))
        return True

    def _admit(self) -> Holding[CommandT, RecordT]:
        holding = self._holding
        if self.state is HostState.LOADING:
            self._demand += 1
            raise CoordinatorLoadInProgressError
        if holding is None or self.state is not HostState.ACTIVE:
            self._demand += 1
            raise NotCoordinatorError
        if not holding.lease.valid():
            holding.interrupted = True
            raise NotCoordinatorError("the lease of this node has lapsed; another node may own the shard by now")
        if not self._log.available_for(self.shard_id):
            holding.interrupted = True
            raise CoordinatorNotAvailableError("the store cannot be reached at present; try again")
        if holding.waiting >= self._options.waiting_max:
            raise CoordinatorNotAvailableError(f"{holding.waiting} operations wait for this shard already; try again")
        return holding

    # ---- decide, replay

    def _execute(self, holding: Holding[CommandT, RecordT], command: CommandT, operation: Operation) -> None:
        self._resume(holding)
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        try:
            decision = holding.shard.decide(command, now_ms, wall_ms)
            operation.entries = [self._codec.encode(record, wall_ms) for record in decision.records]
            operation.effects = decision.effects
            operation.reply = decision.reply
        except KafkaError as error:
            operation.fail(self._failures(error))
        except Exception as error:
            self._faults.error("command failed", key=type(command).__name__, shard=self.shard_id.tag, exc_info=error)
            operation.fail(self._failures(error))
        else:
            if decision.records and not self._replay(holding, decision.records, operation):
                return
        self._enqueue(holding, operation)

    def _replay(self, holding: Holding[CommandT, RecordT], records: Sequence[RecordT], operation: Operation) -> bool:
        try:
            for record in records:
                operation.tokens.append(holding.shard.replay(record))
                operation.anchors.append(holding.shard.anchor(record))
        except Exception:
            # Half a decision may now be in memory, so memory is worth nothing.
            log.exception("replay failed; the shard is dropped", shard=self.shard_id.tag)
            operation.refuse(UnknownServerError())
            holding.lease.give_up("replay failed")
            return False
        return True

    def _enqueue(self, holding: Holding[CommandT, RecordT], operation: Operation) -> None:
        if not operation.entries and not holding.waiting:
            self._settle(holding, operation)
            self._arm(holding)
            return
        holding.pending.append(operation)
        self._start_flusher(holding)

    # ---- append, answer

    def _start_flusher(self, holding: Holding[CommandT, RecordT]) -> None:
        if holding.flusher is None:
            holding.idle.clear()
            holding.flusher = asyncio.get_running_loop().create_task(self._flush(holding))

    async def _flush(self, holding: Holding[CommandT, RecordT]) -> None:
        """Empty the queue, one flush in flight at a time (SR-18); what arrives meanwhile forms the next."""
        try:
            while holding is self._holding and (holding.pending or holding.trim_due):
                if holding.pending:
                    await self._flush_once(holding, holding.take(self._options.flush_records_max))
                else:
                    await trim(holding, self._log, self.shard_id, self._clock, self._meter)
        except Exception as error:
            log.exception("flush failed in a way no owner should see; the shard is dropped", shard=self.shard_id.tag)
            holding.lease.give_up(f"flush: {error}")
        finally:
            holding.flusher = None
            holding.idle.set()

    async def _flush_once(self, holding: Holding[CommandT, RecordT], batch: FlushBatch) -> None:
        entries = holding.number(batch)
        started_ms = self._clock.now_ms()
        try:
            appended = Appended(holding.last, 0)
            if entries:
                appended = await self._log.append(
                    self.shard_id, holding.lease.epoch, [StreamAppend(self._stream, entries)]
                )
        except AppendRefusedError as error:
            if holding is self._holding:
                self._undo(holding, error)
            return
        except ShardLostError as error:
            holding.lease.give_up(str(error))
            return
        if holding is self._holding:
            holding.committed(batch, entries, appended)
            holding.retention.note(self._clock.now_ms(), holding.last)
            self._committed(holding, batch, len(entries), self._clock.now_ms() - started_ms)

    def _committed(self, holding: Holding[CommandT, RecordT], batch: FlushBatch, records: int, elapsed_ms: int) -> None:
        if records:
            self._meter.flushed(records, elapsed_ms)
            holding.interrupted |= elapsed_ms >= self._options.write_timeout_ms
        for operation in batch.operations:
            self._settle(holding, operation)
        if holding is self._holding:
            self._compact(holding)
            self._arm(holding)

    def _settle(self, holding: Holding[CommandT, RecordT], operation: Operation) -> None:
        operation.settle(holding.lease.valid())
        if operation.effects and self._effects is not None:
            try:
                self._effects(operation.effects)
            except Exception:
                log.exception("effects failed", shard=self.shard_id.tag)

    def _undo(self, holding: Holding[CommandT, RecordT], error: AppendRefusedError) -> None:
        """Nothing of the flush landed: restore memory, newest record first, and fail all who built on it (CM-13)."""
        operations = holding.abandon()
        self._meter.refused(sum(len(operation.entries) for operation in operations))
        self._faults.warning("append refused by the store", key="", shard=self.shard_id.tag, why=str(error))
        try:
            for operation in reversed(operations):
                for token in reversed(operation.tokens):
                    holding.shard.undo(token)
        except Exception:
            log.exception("undo failed; the shard is dropped", shard=self.shard_id.tag)
            holding.lease.give_up("undo failed")
        holding.interrupted = True
        holding.stop_compaction(self._clock.now_ms() + self._options.compaction.retry_ms)
        for operation in operations:
            operation.refuse(self._failures(error))
        if holding is self._holding:
            self._arm(holding)

    # ---- compaction (CM-18)

    def _compact(self, holding: Holding[CommandT, RecordT]) -> None:
        copy_next_slice(holding, self._clock, lambda records: self._append_cold(holding, records))
        if holding.trim_due:
            self._start_flusher(holding)

    def _append_cold(self, holding: Holding[CommandT, RecordT], records: Sequence[RecordT]) -> bool:
        operation = Operation(None, cold=True)
        wall_ms = self._clock.wall_ms()
        operation.entries = [self._codec.encode(record, wall_ms) for record in records]
        if not self._replay(holding, records, operation):
            return False
        self._enqueue(holding, operation)
        return True

    # ---- time

    def _resume(self, holding: Holding[CommandT, RecordT]) -> None:
        """After an interruption every timer of the shard starts anew (GC-32a)."""
        if holding.interrupted or holding.lease.pauses != holding.pauses_seen:
            holding.interrupted = False
            holding.pauses_seen = holding.lease.pauses
            holding.shard.paused(self._clock.now_ms())

    def _arm(self, holding: Holding[CommandT, RecordT], at_least_ms: int = 0) -> None:
        self._timer.arm(holding.shard.next_deadline(), at_least_ms)

    def _on_timer(self) -> None:
        holding = self._holding
        if holding is None or self.state is not HostState.ACTIVE:
            return
        able = holding.lease.valid() and self._log.available_for(self.shard_id)
        holding.interrupted |= not able
        if not able or holding.waiting >= self._options.waiting_max:
            self._arm(holding, _RECHECK_MS)
            return
        self._resume(holding)
        now_ms = self._clock.now_ms()
        deadline_ms = holding.shard.next_deadline()
        if deadline_ms is None or deadline_ms > now_ms:
            self._arm(holding)
            return
        commands = holding.shard.due(now_ms)
        for command in commands:
            if holding is self._holding:
                self._execute(holding, command, Operation(None))
        if holding is self._holding:
            self._arm(holding, _DUE_STEP_MS if commands else _RECHECK_MS)

    # ---- ShardOwner: what ownership calls

    @property
    def demand(self) -> int:
        """Requests turned away since the last load, so that asked-for shards load first (CM-12)."""
        return self._demand

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        """Replay the log up to the claim, then serve. Raises what the log or the codec raised when it cannot be."""
        holding = Holding(self._new_shard(), lease, self._options.compaction)
        self._holding, self.state = holding, HostState.LOADING
        started_ms = self._clock.now_ms()
        try:
            replayed = await replay_log(
                self._log,
                self._codec,
                holding,
                self._stream,
                replay_from=claimed.replay_from,
                through=StreamId(claimed.epoch, 0),
                page_entries=self._options.page_entries,
            )
        except Exception:
            if holding is self._holding:
                self.state = HostState.FAILED
            raise
        if holding is not self._holding:
            return
        self.state, self._demand = HostState.ACTIVE, 0
        holding.retention.note(self._clock.now_ms(), holding.last)
        self._meter.loaded(replayed.entries, replayed.unknown, self._clock.now_ms() - started_ms)
        if replayed.unknown:
            log.warning("entries of unknown types skipped", shard=self.shard_id.tag, entries=replayed.unknown)
        for command in holding.shard.loaded(self._clock.now_ms()):
            if holding is self._holding:
                self._execute(holding, command, Operation(None))
        if holding is self._holding:
            self._compact(holding)
            self._arm(holding)

    def lost(self, reason: str) -> None:
        """The shard is not ours any more: fail all who wait with NOT_COORDINATOR, forget its state (SC-78)."""
        holding, self._holding = self._holding, None
        self.state = HostState.IDLE
        self._timer.cancel()
        if holding is None:
            return
        holding.idle.set()
        for operation in holding.abandon():
            operation.refuse(NotCoordinatorError(f"this node gave the shard up: {reason}"))
        if self._dropped is not None:
            self._dropped()

    async def releasing(self) -> None:
        """Take no more commands, wait (bounded) for the last flush, then forget the shard (CM-4)."""
        if self._holding is not None and self.state is HostState.ACTIVE:
            self.state = HostState.RELEASING
            try:
                async with asyncio.timeout(self._options.release_timeout_ms / 1000):
                    await self._holding.idle.wait()
            except TimeoutError:
                log.warning("released with unanswered operations", shard=self.shard_id.tag, operations=self.waiting)
        self.lost("it moves to another node")


def _expire(future: asyncio.Future[object], limit_ms: int) -> None:
    if not future.done():
        message = f"not confirmed within {limit_ms} ms; it may still take effect, so look before repeating it"
        future.set_exception(CoordinatorNotAvailableError(message))
