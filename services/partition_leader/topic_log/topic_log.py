"""The log of one topic-partition in its leader: append, read, find, trim, and the transactions in it
(CM-40…CM-47, PL-006…PL-008).

A TopicLog lives from one claim until the shard is lost. It owns the partition's two streams under that epoch, and keeps
their tail in memory. It never claims, renews or releases (that is ownership), and never decodes a batch to serve it
(P-7). It serves requests only while the lease is valid (CM-3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog

from kip932.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError, OffsetOutOfRangeError
from kip932.ids import OFFSET_MAX
from partition_leader.meter import LeaderMeter
from partition_leader.topic_log.core.appended import AppendedRecords
from partition_leader.topic_log.core.batch import CONTROL_ABORT, CONTROL_COMMIT, LogBatch, NewBatch
from partition_leader.topic_log.core.recovery import TailMemory
from partition_leader.topic_log.core.transactions import AbortedTransaction, OpenTransaction
from partition_leader.topic_log.load import apply_draft, load_state
from partition_leader.topic_log.operations import (
    Draft,
    EndTransactionOperation,
    LogOperation,
    MoveStartOperation,
    ProduceOperation,
    RaiseEndOperation,
)
from partition_leader.topic_log.reader import LogReader
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.state import AppendOutcome, FoundOffset, LogListener, LogState, Measured, ReadResult
from partition_leader.topic_log.trim import LogTrimmer
from partition_leader.topic_log.writer import GroupCommit, StoreNearlyFullError, again
from shard_runtime.clock import Clock
from shard_runtime.ownership.lease import Lease
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.record_log.protocol import Claimed, LogError, RecordLog, ShardId, ShardLostError, StreamId
from shard_runtime.record_log.store_room import StoreRoom
from shard_runtime.tracing import tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = [
    "AppendOutcome", "BeyondLogError", "FoundOffset", "LogBatch", "LogListener", "NewBatch",
    "ReadResult", "TopicLog",
]  # fmt: skip

log = structlog.get_logger(__name__)


class TopicTransactions:
    """The transactions of one topic log, for the code that joins, ends and supervises them (CM-44).

    A transaction's durable record, kept by the transaction coordinator, decides how it ends. The log only keeps batches
    and markers in order: no batch of a transaction is appended after its marker.

    `end`: appends a marker for (producer id, epoch) with this control type, and waits until it is durable.
    """

    __slots__ = ("_end", "_state")

    def __init__(self, state: LogState, end: Callable[[tuple[int, int], int], Awaitable[None]]) -> None:
        self._state = state
        self._end = end

    @property
    def open(self) -> Collection[OpenTransaction]:
        """The transactions that have records here but no marker yet, in the order of their first offsets."""
        return self._state.transactions.open.values()

    @property
    def earliest(self) -> OpenTransaction | None:
        """The open transaction that holds the last stable offset back; None when none is open."""
        return self._state.transactions.earliest

    def aborted_in(self, first: int, last: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions with offsets in `first`…`last`, in the order of their markers."""
        return self._state.transactions.aborted_in(first, last)

    def needs_join(self, producer_id: int, epoch: int) -> bool:
        """Return whether a batch of this transaction may be appended only after its durable record names this
        partition; then call `join`."""
        opened = self._state.transactions.open.get(producer_id)
        if opened is not None and opened.producer_epoch == epoch:
            return False
        return self._state.joined.get(producer_id) != epoch

    def join(self, producer_id: int, epoch: int) -> None:
        """Note that the durable record of the transaction names this partition."""
        if not self._state.producers.ended(producer_id, epoch):
            self._state.join(producer_id, epoch)

    async def end(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Append the COMMIT or ABORT marker; does nothing if the transaction already has its marker here. When this
        returns, the marker is durable and no more batches of this epoch are accepted. Call it only as the transaction's
        durable record says. Raises KafkaError."""
        await self._end((producer_id, epoch), CONTROL_COMMIT if commit else CONTROL_ABORT)


class BeyondLogError(KafkaStorageError):
    """Stored state is too far beyond the log's end to be explained by a lost tail (CM-83); it is not used."""


class TopicLog:
    """One partition's log under one epoch. Create it with `load`; it ends with `close`, or by itself if it is
    fenced."""

    def __init__(
        self,
        record_log: RecordLog,
        state: LogState,
        lease: Lease,
        clock: Clock,
        *,
        settings: TopicLogSettings,
        meter: LeaderMeter,
        refusals: RateLimitedLog,
        room: StoreRoom,
    ) -> None:
        self._state = state
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._meter = meter
        self._refusals = refusals
        self._listeners: list[LogListener] = []
        self._reader = LogReader(
            record_log, state, settings, check_leader=self.check_leader, unreadable=meter.unreadable
        )
        self._trimmer = LogTrimmer(record_log, state, lease, self._reader)
        self._trimming: asyncio.Task[None] | None = None
        self.transactions = TopicTransactions(state, self._end_transaction)
        self.appended = AppendedRecords()
        self._closed: KafkaError | None = None
        self._commit = GroupCommit(
            record_log,
            state,
            lease,
            clock,
            settings=settings,
            committed=self._committed,
            lost=self._lost,
            refused=self._refused,
            room=room,
        )

    @classmethod
    async def load(
        cls,
        record_log: RecordLog,
        lease: Lease,
        claimed: Claimed,
        clock: Clock,
        settings: TopicLogSettings | None = None,
        *,
        memory: TailMemory | None = None,
        suspect: bool = False,
        meter: LeaderMeter | None = None,
        refusals: RateLimitedLog | None = None,
        room: StoreRoom | None = None,
    ) -> TopicLog:
        """Load the log after a claim. When this returns, the log's end is durable, so the owner may send `tail_ok`.

        `memory`: `memory()` of this process's former TopicLog of the partition, if there was one. `refusals`: logs
        refused writes, shared by all topic logs of a process. `suspect`: the topic is older than the store's history
        and had no owner record (CM-47). `room`: the space that the store has left for batches; without it there is no
        limit.

        After a LogError, drop the shard and claim again. After an AppendRefusedError nothing was written: call `load`
        again.
        """
        settings = settings or TopicLogSettings()
        state, report = await load_state(record_log, lease, claimed, clock, settings, memory=memory, suspect=suspect)
        made = cls(
            record_log,
            state,
            lease,
            clock,
            settings=settings,
            meter=meter or LeaderMeter(),
            refusals=refusals or RateLimitedLog(log),
            room=room or StoreRoom(),
        )
        made._meter.loaded(report.indexed, report.jumped)
        if report.compact_from is not None:
            await made._trimmer.trim_control(report.compact_from)
        return made

    @property
    def shard(self) -> ShardId:
        """The partition's shard."""
        return self._state.shard

    @property
    def epoch(self) -> int:
        """The leader epoch: the epoch of the claim (CM-13)."""
        return self._state.epoch

    @property
    def log_start_offset(self) -> int:
        """LOG_START: the first offset that may be read."""
        return self._state.log_start

    @property
    def high_watermark(self) -> int:
        """HW: the end of the last flush that the store confirmed (CM-42)."""
        return self._state.high_watermark

    @property
    def last_stable(self) -> int:
        """LAST_STABLE: the first offset of the earliest open transaction; without one, the high watermark (PL-008)."""
        return self._state.last_stable

    @property
    def log_end(self) -> int:
        """LOG_END: the offset after everything sent, confirmed or not."""
        draft = self._commit.in_flight
        return max(draft.next_offset, self._state.high_watermark) if draft is not None else self._state.high_watermark

    @property
    def closed(self) -> bool:
        """Return whether this node no longer leads the partition under this epoch."""
        return self._closed is not None

    def check_leader(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER (or what closed the log) unless this node may answer now (CM-3, PL-411)."""
        self._commit.check_open()

    def add_listener(self, listener: LogListener) -> None:
        """Start calling `listener` on every change; call it at once if the log is already closed."""
        if self._closed is not None:
            listener.log_closed(again(self._closed))
        else:
            self._listeners.append(listener)

    def remove_listener(self, listener: LogListener) -> None:
        """Stop calling `listener`; does nothing if it was not added."""
        with suppress(ValueError):
            self._listeners.remove(listener)

    def submit(self, batches: Sequence[NewBatch], timeout_ms: int) -> asyncio.Future[AppendOutcome]:
        """Append batches atomically: all get offsets, or none. Never waits; batches are appended in the order of the
        calls.

        The future always gets an AppendOutcome. After `timeout_ms` its `error` is REQUEST_TIMED_OUT; the batches may
        still be committed. Raises KafkaError if they are refused at once: not the leader, too many bytes queued, or the
        store does not confirm writes.
        """
        size = sum(len(batch.data) for batch in batches)
        operation = ProduceOperation(self._future(), batches, size, self._clock.now_ms() + timeout_ms)
        self._commit.submit(operation)
        return operation.future

    async def append(self, batches: Sequence[NewBatch], timeout_ms: int, span: Span | None = None) -> AppendOutcome:
        """Append as `submit` does, and wait for the outcome. `span`: what it is a part of, if that is traced. Raises
        KafkaError."""
        return _checked(await tracing.within(span, self.submit, batches, timeout_ms))

    def read_cached(
        self, offset: int, max_bytes: int, max_offsets: int = 0, *, committed: bool = False
    ) -> ReadResult | None:
        """Return batches from `offset` on if they are in memory, without waiting; None when `read` is needed (PL-006,
        CM-46).

        The first batch may start below `offset`. If there is a batch, at least one is returned, even above `max_bytes`;
        with `max_offsets` > 0 the result ends once it covers that many offsets. `committed`: return only batches below
        LAST_STABLE, and the aborted transactions in them. Raises OffsetOutOfRangeError (PL-007),
        NotLeaderOrFollowerError.
        """
        self._commit.check_open()
        found = self._reader.cached(offset, max_bytes, max_offsets)
        return self._reader.committed(offset, found) if committed and found is not None else found

    async def read(self, offset: int, max_bytes: int, max_offsets: int = 0, *, committed: bool = False) -> ReadResult:
        """Read like `read_cached`, but read from the store what is not in memory. Also raises KafkaStorageError."""
        with self._reading():
            found = await self._reader.read(offset, max_bytes, max_offsets)
            return self._reader.committed(offset, found) if committed else found

    async def batches_between(self, first: int, last: int) -> tuple[LogBatch, ...]:
        """Return the batches with offsets in `first`…`last`, both of which must be in the log; a cold read leaves out
        their bytes. The caches do not change. Raises the errors of `read`."""
        with self._reading():
            return await self._reader.between(first, last)

    async def append_time(self, offset: int, cold: bool) -> int | None:
        """Return when the first record from `offset` on was appended (ms since 1970); None if there is none, or if it
        is not in memory and `cold` is False. Raises the errors of `read`."""
        with self._reading():
            return await self._reader.append_time(offset, cold)

    def bytes_available(self, offset: int, committed: bool = False) -> int:
        """Return the bytes between `offset` and the high watermark or, with `committed`, LAST_STABLE, to compare with
        min_bytes; an estimate below the tail cache."""
        return self._state.bytes_available(offset, committed)

    def holes_from(self, offset: int) -> int:
        """Return how many offsets from `offset` to the high watermark are known to have no record (CM-105): holes, and
        records deleted below the log start."""
        state = self._state
        start = min(max(offset, state.log_start), state.high_watermark)
        return max(0, start - offset) + state.holes.count(start, state.high_watermark)

    def empty_from(self, offset: int, *, committed: bool) -> int:
        """Return how many offsets from `offset` to the high watermark hold nothing that a group could get now: those of
        `holes_from`, markers and, with `committed`, aborted records and everything from LAST_STABLE on (PL-827).

        The number is never too high: holes and the others may be the same offsets, so only the larger of the two
        numbers is used.
        """
        state = self._state
        high = state.high_watermark
        start = min(max(offset, state.log_start), high)
        stable = max(start, state.last_stable) if committed else high
        empty = high - stable + state.transactions.empty_in(start, stable - 1, committed=committed)
        return max(0, start - offset) + max(state.holes.count(start, high), empty)

    async def measure(self, may_read: Callable[[], bool]) -> Measured:
        """Return the log's size (PL-960). `may_read`: asked before each page that is read from the store; without it
        the size is an estimate (PL-961). Raises the errors of `read`."""
        with self._reading():
            measured = await self._reader.measure(may_read)
        state = self._state
        held = max(state.high_watermark - state.log_start, 0)
        return measured._replace(records=max(held - self.empty_from(state.log_start, committed=False), 0))

    async def offset_for(self, timestamp_ms: int, committed: bool = False) -> FoundOffset | None:
        """Return the first offset at or after a timestamp, or for −1 the latest offset, −2 the earliest, −3 that of the
        largest timestamp. None if there is no such record.

        The offset is never beyond the high watermark or, with `committed`, beyond LAST_STABLE (CM-45, PL-605). Raises
        KafkaError.
        """
        with self._reading():
            return await self._reader.offset_for(timestamp_ms, committed)

    async def raise_log_end(self, min_end: int) -> int:
        """Raise the log end to at least `min_end`; return the resulting high watermark. Only for values that a leader
        wrote: a share-partition's start offset, or the offset after its last stored batch (CM-47).

        Raises KafkaError; BeyondLogError if no lost tail can explain the value: the log end then stays as it is
        (CM-83).
        """
        before = self._state.high_watermark
        if min_end <= before:
            self._commit.check_open()
            return before
        if min_end > min(before + self._settings.jump_offsets, OFFSET_MAX):
            self._meter.end_not_raised()
            error = _beyond_log(self.shard.name, before, min_end, self._settings.jump_offsets)
            key = (self.shard.name, BeyondLogError)
            self._refusals.error("state_beyond_log_end", key=key, cause=error.message, effect="the log end stays")
            raise error
        await self._do(RaiseEndOperation(self._future(), min_end))
        return self._state.high_watermark

    async def move_log_start(self, offset: int) -> int:
        """Delete records below `offset` (−1: the high watermark); return the resulting log start (CM-45).

        The new log start is durable before it is visible and before anything is trimmed. Raises OffsetOutOfRangeError
        for an offset above the high watermark.
        """
        self._commit.check_open()
        wanted = self._state.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self._state.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.shard.name}: cannot begin the log at {offset}; expected −1 or 0…{self._state.high_watermark}"
            )
        if wanted > self._state.log_start:
            await self._do(MoveStartOperation(self._future(), wanted))
            await self._trimmer.trim_main()
        return self._state.log_start

    async def retain(self, now_wall_ms: int, retention_ms: int, retention_bytes: int, *, topic: str = "") -> int:
        """Trim whole batches by age and size (−1: no limit); return the resulting log start. The work per call is
        bounded; the next sweep trims the rest. `topic`: the topic's name, for the log line. Raises KafkaError."""
        with self._reading():
            trim = await self._trimmer.start_after(now_wall_ms, retention_ms, retention_bytes)
        before = self._state.log_start
        if trim.log_start <= before:
            return before
        start = await self.move_log_start(trim.log_start)
        log.info(
            "records_deleted_by_retention",
            topic=topic,
            partition=self.shard.name,
            log_start_before=before,
            log_start=start,
            cause=trim.why(before, retention_ms, retention_bytes),
        )
        return start

    def set_cache_bytes(self, limit_bytes: int) -> None:
        """Change the tail cache's limit, when the node gains or loses partitions (CM-46); it takes effect at once."""
        self._state.tail.set_limit(limit_bytes)

    def cached_bytes(self) -> int:
        """Return the memory that the tail cache uses now."""
        return self._state.tail.memory

    def memory(self) -> TailMemory:
        """Return what this process remembers of the log's tail; pass it to the next `load`, under a higher epoch
        (CM-47).

        It has only confirmed batches: an unconfirmed offset was never read or returned to a producer, so another record
        may get it.
        """
        return TailMemory(self.epoch, self._state.high_watermark, self._state.tail.batches)

    async def close(self, drain_s: float = 0.0, error: KafkaError | None = None) -> None:
        """Stop leading. With `drain_s`, queued operations are written and answered first, for at most that long; submit
        nothing meanwhile. When this returns, all callers have been answered and no flush is running; then call
        `record_log.drop` or `release`. May be called repeatedly."""
        if drain_s > 0 and self._closed is None:
            await self._commit.drain(drain_s)
        self._end(error or NotLeaderOrFollowerError(f"this node no longer leads {self.shard.name}; clients look it up"))
        await self._commit.stop()
        if self._trimming is not None:
            self._trimming.cancel()
            await asyncio.wait({self._trimming})

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Wrap a read for a response: check that this node leads before and after it, and turn store failures into
        Kafka errors."""
        self._commit.check_open()
        try:
            yield
        except ShardLostError as error:
            raise NotLeaderOrFollowerError(f"this node no longer leads the partition ({error})") from error
        except LogError as error:
            raise KafkaStorageError(f"the store cannot be read now ({error}); try again") from error
        self._commit.check_open()

    def _future(self) -> asyncio.Future[AppendOutcome]:
        return asyncio.get_running_loop().create_future()

    async def _end_transaction(self, producer: tuple[int, int], control_type: int) -> None:
        await self._do(EndTransactionOperation(self._future(), producer, control_type))

    async def _do(self, operation: LogOperation) -> None:
        self._commit.submit(operation)
        _checked(await operation.future)

    def _committed(self, draft: Draft, elapsed_ms: int) -> None:
        """Update memory, then call listeners; callers are answered right afterwards, in the same step of the event
        loop."""
        state, log_start, high_watermark = self._state, self._state.log_start, self._state.high_watermark
        apply_draft(state, draft)
        if draft.batches:
            records = sum(batch.record_count for batch in draft.batches if not batch.is_control)
            self.appended.records += records
            self._meter.appended(len(draft.batches), records, draft.size, elapsed_ms)
        if draft.compact_from is not None:
            state.producers.expire(draft.wall_ms - self._settings.producer_expiration_ms)
            self._trim_later(draft.compact_from)
        if draft.raised:
            self._meter.end_raised(draft.raised)
            log.error(
                "log_end_raised",
                cause="a share-partition had state beyond it",
                shard=self.shard.name,
                epoch=self.epoch,
                offsets=draft.raised,
                log_end=state.high_watermark,
            )
        if state.log_start > log_start:
            state.tail.trim(state.log_start)
            state.transactions.trim(state.log_start)
            state.window = None
            self._notify("log_start_advanced", state.log_start)
        if state.high_watermark > high_watermark:
            self._notify("high_watermark_advanced", state.high_watermark)

    def _refused(self, records: int, error: KafkaError) -> None:
        self._meter.refused(records)
        full = isinstance(error, StoreNearlyFullError)
        if full:
            self._meter.refused_store_full(records)
        self._refusals.warning(
            "topic_writes_refused",
            key=StoreNearlyFullError if full else (self.shard, error.code),  # one line for all logs: one cause
            sums={"records": records},
            shard=self.shard.name,
            cause=error.message,
        )

    def _lost(self, answer: KafkaError, cause: BaseException) -> None:
        log.warning("topic_log_given_up", shard=self.shard.name, epoch=self.epoch, cause=repr(cause))
        self._end(answer)
        self._lease.give_up(f"{type(cause).__name__}: {cause}")

    def _end(self, error: KafkaError) -> None:
        if self._closed is not None:
            return
        self._closed = error
        self._commit.close(error)
        self._notify("log_closed", error)
        self._listeners.clear()

    def _notify(self, event: str, value: object) -> None:
        for listener in tuple(self._listeners):
            try:
                getattr(listener, event)(value)
            except Exception:
                log.exception("topic_log_listener_failed", shard=self.shard.name, event_name=event)

    def _trim_later(self, before: StreamId) -> None:
        """Trim the control log in its own task, unless such a trim is still running."""
        if self._trimming is None or self._trimming.done():
            self._trimming = asyncio.get_running_loop().create_task(
                self._trimmer.trim_control(before), name=f"topic-log-trim {self.shard.name}"
            )


def _checked(outcome: AppendOutcome) -> AppendOutcome:
    if outcome.error is not None:
        raise again(outcome.error)
    return outcome


def _beyond_log(name: str, log_end: int, stored_end: int, jump_offsets: int) -> BeyondLogError:
    """Return the error for the partition `name`, with advice on what to do."""
    return BeyondLogError(
        f"{name}: the log ends at {log_end}, but state is stored up to {stored_end}; at most "
        f"{jump_offsets} offsets can be of a tail that the store lost, so the stored state is "
        "damaged or forged. Nothing was changed. If the log did lose as much, start the leader with a larger "
        "log.lost.tail.jump.offsets; else set the group's offset again"
    )
