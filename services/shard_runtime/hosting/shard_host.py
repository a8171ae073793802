"""Runs one pure shard over its durable log: load, then decide, replay, append in batches, reply (SC-59…65, GC-2…6).

The host does all the waiting: for commands, for the flush in flight and for the one armed timer. It also checks the
lease. It never decides anything about groups or share state, and it never claims or renews: `ownership` does that.

The host replies only after every append that the reply depends on is durable, and only while the lease is valid (CM-3,
SR-24). When the store refuses an append, the host undoes its records in reverse order (CM-13). After any other failed
append it gives the lease up: ownership then calls `lost`, which fails the waiting callers, and claims the shard again.
A caller's write time-out rolls nothing back (SC-63). The host also gives the lease up when an operator has settled
damaged entries of the shard, so that the next replay applies the settlement (CM-109).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic

import structlog

from kip932.armed_timer import ArmedTimer
from kip932.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    UnknownServerError,
)
from shard_runtime.clock import Clock
from shard_runtime.hosting.compaction_steps import copy_next_slice, trim
from shard_runtime.hosting.host_options import HostMeter, HostOptions, HostState
from shard_runtime.hosting.kafka_errors import FailureMapping, coordinator_failure
from shard_runtime.hosting.replay import replay_log
from shard_runtime.hosting.shard import Codec, CommandT, RecordT, Shard
from shard_runtime.hosting.shard_tenure import FlushBatch, PendingCommand, ShardTenure, expire
from shard_runtime.ownership.lease import Lease
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.record_log.protocol import (
    Appended,
    AppendRefusedError,
    Claimed,
    Entry,
    LogError,
    RecordLog,
    ShardId,
    ShardLostError,
    StreamAppend,
    StreamId,
)
from shard_runtime.tracing import tracing

__all__ = ["HostMeter", "HostOptions", "HostState", "ShardHost"]

log = structlog.get_logger(__name__)

_RECHECK_MS: Final = 1_000
_DUE_STEP_MS: Final = 10


class ShardHost(Generic[CommandT, RecordT]):
    """Hosts one shard. The host lives as long as the process; it has the shard from `gained` to `lost`.

    `new_shard` makes an empty shard for each tenure. `effects` is called with the effects of one durable decision, in
    order. `dropped` is called when the shard is lost, to cancel outgoing calls made for it. Both run on the event loop
    and must not block; their exceptions are logged.
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
        self._meter = meter or HostMeter()
        self._stream = shard_id.streams[0]
        self._tenure: ShardTenure[CommandT, RecordT] | None = None
        self._timer = ArmedTimer(self._on_timer)
        self._demand = 0
        self._faults = RateLimitedLog(log)

    # ---- commands

    @property
    def shard(self) -> Shard[CommandT, RecordT] | None:
        """The shard while it is served here, for metrics and overviews; its state may not be durable yet."""
        return self._tenure.shard if self._tenure and self.state is HostState.ACTIVE else None

    @property
    def waiting(self) -> int:
        """The number of commands that wait for a commit."""
        return self._tenure.waiting if self._tenure else 0

    async def submit(self, command: CommandT, timeout_ms: int | None = None) -> object:
        """Run a command; return its reply once everything that the reply depends on is durable. Raises KafkaError.

        After `timeout_ms` (default `write_timeout_ms`) it raises COORDINATOR_NOT_AVAILABLE. Nothing is rolled back: the
        records may still commit, so the caller repeats the request (SC-63).
        """
        future = self.post(command)
        if future.done():
            return future.result()
        limit_ms = self._options.write_timeout_ms if timeout_ms is None else timeout_ms
        handle = asyncio.get_running_loop().call_later(limit_ms / 1000, expire, future, limit_ms)
        try:
            return await future
        finally:
            handle.cancel()

    def post(self, command: CommandT) -> asyncio.Future[object]:
        """Decide and replay now; the future gets the reply, or a KafkaError, once the records are durable.

        Raises KafkaError at once when the command is not accepted: the shard is not served here (GC-6), the store is
        unavailable (CM-15), or the inbox is full.
        """
        tenure = self._admit()
        pending = PendingCommand(asyncio.get_running_loop().create_future())
        self._execute(tenure, command, pending)
        assert pending.future is not None
        return pending.future

    def _admit(self) -> ShardTenure[CommandT, RecordT]:
        tenure = self._tenure
        if self.state is HostState.LOADING:
            self._demand += 1
            raise CoordinatorLoadInProgressError
        if tenure is None or self.state is not HostState.ACTIVE:
            self._demand += 1
            raise NotCoordinatorError
        if not tenure.lease.valid():
            tenure.interrupted = True
            raise NotCoordinatorError("the lease of this node has lapsed; another node may own the shard by now")
        if not self._log.available_for(self.shard_id):
            tenure.interrupted = True
            raise CoordinatorNotAvailableError("the store cannot be reached at present; try again")
        if tenure.waiting >= self._options.waiting_max:
            raise CoordinatorNotAvailableError(f"{tenure.waiting} commands wait for this shard already; try again")
        return tenure

    # ---- decide, replay

    def _execute(self, tenure: ShardTenure[CommandT, RecordT], command: CommandT, pending: PendingCommand) -> None:
        self._resume(tenure)
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        try:
            decision = tenure.shard.decide(command, now_ms, wall_ms)
            pending.entries = [self._codec.encode(record, wall_ms) for record in decision.records]
            pending.effects = decision.effects
            pending.reply = decision.reply
        except KafkaError as error:
            pending.fail(self._failures(error))
        except Exception as error:
            self._faults.error("command_failed", key=type(command).__name__, shard=self.shard_id.tag, exc_info=error)
            pending.fail(self._failures(error))
        else:
            if decision.records and not self._replay(tenure, decision.records, pending):
                return
        self._enqueue(tenure, pending)

    def _replay(
        self, tenure: ShardTenure[CommandT, RecordT], records: Sequence[RecordT], pending: PendingCommand
    ) -> bool:
        try:
            for record in records:
                pending.tokens.append(tenure.shard.replay(record))
                pending.anchors.append(tenure.shard.anchor(record))
        except Exception:
            # Only part of the decision may be in memory, so the shard's state cannot be trusted.
            log.exception("replay_failed", shard=self.shard_id.tag, effect="the shard is dropped")
            pending.refuse(UnknownServerError())
            tenure.lease.give_up("replay failed")
            return False
        return True

    def _enqueue(self, tenure: ShardTenure[CommandT, RecordT], pending: PendingCommand) -> None:
        if not pending.entries and not tenure.waiting:
            self._settle(tenure, pending)
            self._arm(tenure)
            return
        tenure.pending.append(pending)
        self._start_flusher(tenure)

    # ---- append, answer

    def _start_flusher(self, tenure: ShardTenure[CommandT, RecordT]) -> None:
        if tenure.flusher is None:
            tenure.idle.clear()
            tenure.flusher = asyncio.get_running_loop().create_task(self._flush(tenure))

    async def _flush(self, tenure: ShardTenure[CommandT, RecordT]) -> None:
        """Append the queue, one flush in flight at a time (SR-18); commands that arrive meanwhile form the next
        flush."""
        options = self._options
        try:
            while tenure is self._tenure and (tenure.pending or tenure.trim_due):
                if tenure.pending:
                    await self._flush_once(tenure, tenure.take(options.flush_records_max, options.flush_bytes_max))
                else:
                    await trim(tenure, self._log, self.shard_id, self._clock, self._meter)
        except Exception as error:
            log.exception("flush_failed", shard=self.shard_id.tag, effect="the shard is dropped")
            tenure.lease.give_up(f"flush: {error}")
        finally:
            tenure.flusher = None
            tenure.idle.set()

    async def _flush_once(self, tenure: ShardTenure[CommandT, RecordT], batch: FlushBatch) -> None:
        entries = tenure.number(batch)
        started_ms = self._clock.now_ms()
        try:
            appended = Appended(tenure.last, 0)
            if entries:
                appended = await self._append(tenure, batch, entries)
        except AppendRefusedError as error:
            if tenure is self._tenure:
                self._undo(tenure, error)
            return
        except ShardLostError as error:
            tenure.lease.give_up(str(error))
            return
        if tenure is self._tenure:
            tenure.committed(batch, entries, appended)
            tenure.retention.note(self._clock.now_ms(), tenure.last)
            self._committed(tenure, batch, len(entries), self._clock.now_ms() - started_ms)

    async def _append(
        self, tenure: ShardTenure[CommandT, RecordT], batch: FlushBatch, entries: list[Entry]
    ) -> Appended:
        appends = [StreamAppend(self._stream, entries)]
        if not tracing.on:
            return await self._log.append(self.shard_id, tenure.lease.epoch, appends)
        with tracing.append((pending.span for pending in batch.commands), self.shard_id.tag, len(entries)):
            return await self._log.append(self.shard_id, tenure.lease.epoch, appends)

    def _committed(
        self, tenure: ShardTenure[CommandT, RecordT], batch: FlushBatch, records: int, elapsed_ms: int
    ) -> None:
        if records:
            self._meter.flushed(records, elapsed_ms)
            tenure.interrupted |= elapsed_ms >= self._options.write_timeout_ms
        for pending in batch.commands:
            self._settle(tenure, pending)
        if tenure is self._tenure:
            self._compact(tenure)
            self._arm(tenure)

    def _settle(self, tenure: ShardTenure[CommandT, RecordT], pending: PendingCommand) -> None:
        pending.settle(tenure.lease.valid())
        if pending.effects and self._effects is not None:
            try:
                self._effects(pending.effects)
            except Exception:
                log.exception("effects_failed", shard=self.shard_id.tag)

    def _undo(self, tenure: ShardTenure[CommandT, RecordT], error: AppendRefusedError) -> None:
        """Undo all records that are not durable, newest first, and fail their callers: a flush was refused (CM-13)."""
        commands = tenure.abandon()
        self._meter.refused(sum(len(pending.entries) for pending in commands))
        self._faults.warning("store_append_refused", key="", shard=self.shard_id.tag, cause=str(error))
        try:
            for pending in reversed(commands):
                for token in reversed(pending.tokens):
                    tenure.shard.undo(token)
        except Exception:
            log.exception("undo_failed", shard=self.shard_id.tag, effect="the shard is dropped")
            tenure.lease.give_up("undo failed")
        tenure.interrupted = True
        tenure.stop_compaction(self._clock.now_ms() + self._options.compaction.retry_ms)
        for pending in commands:
            pending.refuse(self._failures(error))
        if tenure is self._tenure:
            self._arm(tenure)

    # ---- compaction (CM-18)

    def _compact(self, tenure: ShardTenure[CommandT, RecordT]) -> None:
        copy_next_slice(tenure, self._clock, lambda records: self._append_cold(tenure, records))
        if tenure.trim_due:
            self._start_flusher(tenure)

    def _append_cold(self, tenure: ShardTenure[CommandT, RecordT], records: Sequence[RecordT]) -> bool:
        pending = PendingCommand(None, cold=True)
        wall_ms = self._clock.wall_ms()
        pending.entries = [self._codec.encode(record, wall_ms) for record in records]
        if not self._replay(tenure, records, pending):
            return False
        self._enqueue(tenure, pending)
        return True

    # ---- time

    def _resume(self, tenure: ShardTenure[CommandT, RecordT]) -> None:
        """After an interruption, restart every timer of the shard (GC-32a)."""
        if tenure.interrupted or tenure.lease.pauses != tenure.pauses_seen:
            tenure.interrupted = False
            tenure.pauses_seen = tenure.lease.pauses
            tenure.shard.paused(self._clock.now_ms())

    def _arm(self, tenure: ShardTenure[CommandT, RecordT], at_least_ms: int = 0) -> None:
        """Arm the timer for the shard's next deadline, at least `at_least_ms` from now."""
        deadline_ms = tenure.shard.next_deadline()
        if deadline_ms is not None and deadline_ms < self._timer.at:
            now_ms = self._clock.now_ms()
            at_ms = max(deadline_ms, now_ms + at_least_ms)
            self._timer.arm(at_ms, (at_ms - now_ms) / 1000)

    def _on_timer(self) -> None:
        tenure = self._tenure
        if tenure is None or self.state is not HostState.ACTIVE:
            return
        able = tenure.lease.valid() and self._log.available_for(self.shard_id)
        tenure.interrupted |= not able
        if not able or tenure.waiting >= self._options.waiting_max:
            self._arm(tenure, _RECHECK_MS)
            return
        self._resume(tenure)
        now_ms = self._clock.now_ms()
        deadline_ms = tenure.shard.next_deadline()
        if deadline_ms is None or deadline_ms > now_ms:
            self._arm(tenure)
            return
        commands = tenure.shard.due(now_ms)
        for command in commands:
            if tenure is self._tenure:
                self._execute(tenure, command, PendingCommand(None))
        if tenure is self._tenure:
            self._arm(tenure, _DUE_STEP_MS if commands else _RECHECK_MS)

    # ---- ShardOwner: called by ownership

    @property
    def demand(self) -> int:
        """The number of requests refused since the last load; shards with the most are loaded first (CM-12)."""
        return self._demand

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        """Replay the log up to the claim, then serve. Raises what `replay_log` raises."""
        tenure = ShardTenure(self._new_shard(), lease, self._options.compaction)
        self._tenure, self.state = tenure, HostState.LOADING
        started_ms = self._clock.now_ms()
        try:
            replayed = await replay_log(
                self._log,
                self._codec,
                tenure,
                self._stream,
                replay_from=claimed.replay_from,
                through=StreamId(claimed.epoch, 0),
                page_entries=self._options.page_entries,
            )
        except Exception:
            if tenure is self._tenure:
                self.state = HostState.FAILED
            raise
        if tenure is not self._tenure:
            return
        self.state, self._demand = HostState.ACTIVE, 0
        tenure.retention.note(self._clock.now_ms(), tenure.last)
        self._meter.loaded(replayed.entries, replayed.unknown, self._clock.now_ms() - started_ms)
        _guard_quarantine(tenure, self._log, self._options.settlements_every_ms)
        for command in tenure.shard.loaded(self._clock.now_ms()):
            if tenure is self._tenure:
                self._execute(tenure, command, PendingCommand(None))
        if tenure is self._tenure:
            self._compact(tenure)
            self._arm(tenure)

    def lost(self, reason: str) -> None:
        """Fail all waiting callers with NOT_COORDINATOR and forget the shard's state, since it is lost (SC-78)."""
        tenure, self._tenure = self._tenure, None
        self.state = HostState.IDLE
        self._timer.cancel()
        if tenure is None:
            return
        tenure.end()
        for pending in tenure.abandon():
            pending.refuse(NotCoordinatorError(f"this node gave the shard up: {reason}"))
        if self._dropped is not None:
            self._dropped()

    async def releasing(self) -> None:
        """Refuse new commands, wait (bounded) for the last flush, then forget the shard (CM-4)."""
        if self._tenure is not None and self.state is HostState.ACTIVE:
            self.state = HostState.RELEASING
            try:
                async with asyncio.timeout(self._options.release_timeout_ms / 1000):
                    await self._tenure.idle.wait()
            except TimeoutError:
                log.warning("commands_unanswered_at_release", shard=self.shard_id.tag, commands=self.waiting)
        self.lost("it moves to another node")


def _guard_quarantine(tenure: ShardTenure[CommandT, RecordT], record_log: RecordLog, every_ms: int) -> None:
    """Start `_watch_settlements` if the replay put entries in quarantine."""
    if tenure.shard.quarantined():
        tenure.watch = asyncio.get_running_loop().create_task(_watch_settlements(tenure, record_log, every_ms))


async def _watch_settlements(tenure: ShardTenure[CommandT, RecordT], record_log: RecordLog, every_ms: int) -> None:
    """While entries of the shard are in quarantine, check every `every_ms` whether an operator has settled one; if so,
    give the shard up (CM-109). This node claims it again at once, and the replay applies the settlement."""
    shard = tenure.lease.shard
    while tenure.shard.quarantined():
        await asyncio.sleep(every_ms / 1_000)
        try:
            settled = await record_log.skipped(shard)
        except LogError as error:
            log.debug("settlements_read_failed", shard=shard.tag, cause=str(error))
            continue
        waiting = {found.at for found in tenure.shard.quarantined()}
        if found := sorted(waiting & {str(entry) for entry in settled}):
            tenure.lease.give_up(f"an operator settled damaged entries ({', '.join(found[:3])}); it is replayed again")
            return
