"""Runs the core of one share-partition: carries out its effects, and feeds their results back as events.

All events of a share-partition pass through `feed`, one at a time (PL-003). `handle` decides, then the host carries out
the effects; an event that arises from them is handled next. Persister calls run in their own tasks, and each ends with
an event. The host makes no decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from kip932.errors import FencedLeaderEpochError, InQuarantineError, InvalidRequestError, KafkaError, UnknownServerError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, SharePartitionKey, topic_id_text
from kip932.setting import duration_ms
from kip932.state_batches import WriteStats
from kip932.state_values import ReadState, StoredState, WriteState
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.limits import LIMITS
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.core.transitions import IllegalTransitionError
from partition_leader.share_partition.dead_letter_port import Spans
from partition_leader.share_partition.delay_clock import on_the_leader, on_the_wall
from partition_leader.share_partition.leader_parts import LeaderParts, LedPartition
from partition_leader.share_partition.operation_result import OnResult, OperationResult
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.config.kafka_configs import BY_DURATION, EARLIEST
from shard_runtime.record_log.protocol import LogError
from shard_runtime.tracing import tracing
from share_persister.values import PersisterError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = structlog.get_logger(__name__)

#: The log line for a share-partition object that was dropped; its `reason` is a `DropReason`.
DROPPED_LINE: Final = "share_partition_dropped"
#: How many times the state of a share-partition that is not initialised yet is read, and the pause between reads
#: (PL-635).
INITIALIZE_ATTEMPTS = 5
INITIALIZE_RETRY_S = 0.2
#: Events that touch no record, so that they change no deadline.
_OF_THE_FETCH_LOCK: Final = frozenset({ev.TakeFetchLock, ev.ReleaseFetchLock})


class HostOwner(Protocol):
    """The part of the cache that its hosts call."""

    def wake(self, host: SharePartitionHost) -> None:
        """Let waiting fetches try this share-partition again (PL-214)."""
        ...

    def activated(self, host: SharePartitionHost) -> None:
        """Let waiting fetches try the share-partition, now that it is loaded, or retire it if it was loaded only to
        write its dead letters (PL-922)."""
        ...

    def initialize_failed(self, host: SharePartitionHost, error: KafkaError) -> None:
        """Report `error` once to every fetch that waits for the share-partition, because it could not be loaded
        (PL-604)."""
        ...

    def fenced(self, host: SharePartitionHost, retiring: bool) -> None:
        """Take the share-partition out of the cache. If `retiring`, it still finishes its writes (PL-631)."""
        ...

    def dropped(self, host: SharePartitionHost, generation: int) -> None:
        """Forget the share-partition, which has ended. A successor's generation must exceed `generation` (PL-602)."""
        ...


class SharePartitionHost:
    """One share-partition at work on this leader."""

    def __init__(
        self,
        key: SharePartitionKey,
        led: LedPartition,
        generation: int,
        owner: HostOwner,
        parts: LeaderParts,
    ) -> None:
        self.key = key
        self.log = led.log
        #: The group's effective configs; the owner replaces it whenever a config changes (PL-1003).
        self.config: GroupConfig = parts.config(key.group_id)
        self.core = SharePartition(generation, key.text, parts.operation_timeout_ms, parts.chance, LIMITS)
        self._lease, self._owner = led.lease, owner
        self._persister, self._deadlines = parts.persister, parts.deadlines
        self._clock, self._made_ms = parts.clock, parts.clock.now_ms()
        self._dropped, self._loaded = parts.dropped, parts.loaded
        self._archived = parts.archived
        self._letters, self._delays, self._ended = parts.letters, parts.delays, parts.ended
        self._inbox: deque[ev.Event] = deque()
        self._running, self._next_op = False, 0
        self._replies: dict[int, OnResult] = {}
        self._locking: int | None = None
        self._read_log: fx.ReadLog | None = None
        self._acquired: fx.Acquired | None = None
        #: An acknowledgement of a traced request that no write has taken up yet: its operation, and the request's span.
        self._traced: tuple[int, Span] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._carry_out: dict[type, Callable[..., None]] = {
            fx.Persist: self._on_persist,
            fx.Reply: self._on_reply,
            fx.ReadLog: self._on_read_log,
            fx.Acquired: self._on_acquired,
            fx.Wake: self._on_wake,
            fx.ReadBackWanted: self._on_read_back,
            fx.DeadLetter: self._on_dead_letter,
            fx.Archived: self._on_archived,
            fx.Activated: self._on_activated,
            fx.Fenced: self._on_fenced,
            fx.Dropped: self._on_dropped,
        }

    # --- entry point

    def feed(self, event: ev.Event) -> None:
        """Handle one event now, or right after the event that is being handled."""
        self._inbox.append(event)
        if self._running:
            return
        self._running, changed = True, False
        try:
            while self._inbox:
                taken = self._inbox.popleft()
                changed |= type(taken) not in _OF_THE_FETCH_LOCK
                for effect in self._handled(taken):
                    self._carry_out[type(effect)](effect)
        finally:
            self._running = False
        if changed:
            self._delays.check(self.key, self.core, self.config)
            self._deadlines.set(self._tick, self.core.next_deadline())

    def _handled(self, event: ev.Event) -> list[fx.Effect]:
        try:
            return self.core.handle(event, self._clock.now_ms())
        except IllegalTransitionError as error:  # memory is wrong: a new object reads the stored state
            log.exception(
                "illegal_record_state",
                effect="the share-partition is dropped, and loaded again from its stored state",
                **self._names(),
            )
            return self.core.give_up(error)

    def start(self) -> None:
        """Start initialisation: read the stored state (PL-602). Call it once."""
        self._spawn(self._initialize())

    def lock(self, fetch_id: int, max_records: int) -> fx.ReadLog | None:
        """Ask for the fetch lock. Returns what to read, or None if this fetch did not get the lock (PL-206).

        If you get the lock, you must call `acquire` or `unlock` afterwards, on every path.
        """
        self._locking, self._read_log = fetch_id, None
        self.feed(ev.TakeFetchLock(fetch_id, max_records, self.config))
        self._locking = None
        return self._read_log

    def unlock(self, fetch_id: int) -> None:
        """Release the fetch lock, unless `acquire` has done so (PL-206)."""
        if self.core.fetch_lock == fetch_id:
            self.feed(ev.ReleaseFetchLock(fetch_id))

    def acquire(self, event: ev.Acquire) -> tuple[fx.AcquiredRange, ...]:
        """Acquire from a finished log read, and release the fetch lock; return the ranges, perhaps none."""
        self._acquired = None
        self.feed(event)
        acquired: fx.Acquired | None = self._acquired
        self._acquired = None
        return acquired.ranges if acquired is not None else ()

    def acknowledge(self, member_id: str, batches: tuple[ev.AckBatch, ...], on_result: OnResult) -> None:
        """Apply the acknowledgements of one request. `on_result` is called once, perhaps before this returns."""
        op = self._operation(on_result)
        if tracing.current is not None:
            self._traced = op, tracing.current
        self.feed(ev.Acknowledge(op, member_id, batches, self.config))

    def release(
        self,
        member_id: str,
        ranges: Sequence[fx.AcquiredRange] | None = None,
        on_result: OnResult | None = None,
    ) -> None:
        """Release what the member holds, because its session ended (PL-520), or only `ranges`, because what it just
        acquired cannot be delivered (PL-505). `on_result` is called once, with what was released."""
        self.feed(ev.Release(self._operation(on_result or _ignore), member_id, self.config, ranges))

    def drop(self, error: KafkaError) -> None:
        """Stop at once, without any write: leadership is lost (PL-632)."""
        self.feed(ev.Drop(error))

    def skip_hole(self, offset: int) -> None:
        """Skip the hole at `offset`, the next offset to fetch, if the tail cache knows where it ends (CM-47).

        A read from the store does not show that: records may have been appended since it ended.
        """
        with contextlib.suppress(KafkaError):
            read = self.log.read_cached(offset, 1, 1)
            if read is not None and not read.batches and read.data_offset > offset:
                self.feed(ev.HoleFound(offset, read.data_offset))

    def lease_valid(self) -> bool:
        """Return whether this leader may still confirm a change (PL-411)."""
        return self._lease.valid()

    def lockable(self) -> bool:
        """Return whether a fetch could lock it now (PL-206)."""
        return self.core.can_fetch(self.config)

    def bytes_available(self) -> int:
        """Return the bytes that a fetch could read now: from its next fetch offset to the high watermark, or to
        LAST_STABLE if the group reads committed records (PL-211, PL-802)."""
        return self.log.bytes_available(self.core.next_fetch_offset(), self.config.read_committed)

    def ready(self) -> bool:
        """Return whether a fetch could acquire here now: it could get the lock, and there are records to read."""
        return self.core.can_fetch(self.config) and self.bytes_available() > 0

    # --- called by the dead-letter post

    def letters_done(self, dead_letter_id: int, spans: Spans) -> None:
        """Pass on that these dead letters are written, or given up for good (T15)."""
        self.feed(ev.DlqDone(dead_letter_id, tuple(spans)))

    def letters_postponed(self, dead_letter_id: int, spans: Spans) -> None:
        """Pass on that these dead letters are left to a successor (PL-921)."""
        self.feed(ev.DlqPostponed(dead_letter_id, tuple(spans)))

    def letters_full(self) -> bool:
        """Return whether unwritten dead letters keep new records from being acquired (PL-916)."""
        return self.core.dead_letters_full(self.config)

    async def close(self) -> None:
        """Cancel the tasks of this host and wait until they have ended. Call `drop` first."""
        self._deadlines.set(self._tick, None)
        self._cancel_tasks()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- effects

    def _on_persist(self, effect: fx.Persist) -> None:
        traced, self._traced = self._traced, None
        self._spawn(self._write(effect, None if traced is None else traced[1]))

    def _on_reply(self, effect: fx.Reply) -> None:
        if self._traced is not None and self._traced[0] == effect.op_id:
            self._traced = None  # it needed no write
        self._replies.pop(effect.op_id, _ignore)(OperationResult(effect.error, effect.persisted, effect.acknowledged))

    def _on_read_log(self, effect: fx.ReadLog) -> None:
        if self._locking == effect.fetch_id:
            self._read_log = effect
        else:  # `lock` was called while another event was handled; it returned None, and the fetch continued
            self.feed(ev.ReleaseFetchLock(effect.fetch_id))

    def _on_acquired(self, effect: fx.Acquired) -> None:
        self._acquired = effect

    def _on_wake(self, _: object) -> None:
        self._owner.wake(self)

    def _on_activated(self, _: fx.Activated) -> None:
        self._loaded(self._clock.now_ms() - self._made_ms)
        self._owner.activated(self)
        self.skip_hole(self.core.next_fetch_offset())

    def _on_read_back(self, effect: fx.ReadBackWanted) -> None:
        self._spawn(self._read_back(effect.generation))

    def _on_dead_letter(self, effect: fx.DeadLetter) -> None:
        self._letters.send(self, effect)

    def _on_archived(self, effect: fx.Archived) -> None:
        self._archived(self.key, effect)

    def _on_fenced(self, effect: fx.Fenced) -> None:
        self._dropped(effect.reason)
        why = {"reason": effect.reason.value, "cause": effect.error.message, "retiring": effect.retiring}
        # State in quarantine is read again every second, and its owner has already logged the damage.
        say = log.debug if isinstance(effect.error, InQuarantineError) else log.info
        say(DROPPED_LINE, **self._names(), **why)
        if self.core.status is Status.FAILED:
            self._loaded(self._clock.now_ms() - self._made_ms)
            self._owner.initialize_failed(self, effect.error)
        else:
            self._owner.fenced(self, effect.retiring)
        if effect.retiring:
            self._letters.leave(self)

    def _on_dropped(self, effect: fx.Dropped) -> None:
        self._deadlines.set(self._tick, None)
        self._letters.forget(self)
        self._delays.forget(self.key, self.core)
        self._ended(self.key, self.core, self.log.epoch)
        replies, self._replies = self._replies, {}
        for reply in replies.values():
            reply(OperationResult(effect.error, persisted=True))
        # Calls that are still running no longer have an effect, and a write among them must not delay a successor's.
        self._cancel_tasks()
        self._owner.dropped(self, effect.generation)

    # --- asynchronous work

    async def _initialize(self) -> None:
        try:
            stored = await self._read_initialised()
            resolved = stored.start_offset < 0
            if resolved:
                start = await _initial_start_offset(self.log, self.config.auto_offset_reset, self._clock.wall_ms())
            else:
                start = stored.start_offset
            await self.log.raise_log_end(max([start, *(batch.last_offset + 1 for batch in stored.batches)]))
        except (KafkaError, LogError, PersisterError) as error:
            self._letters.loaded(self.key, failure := self._kafka_error(error))
            self.feed(ev.InitializeFailed(failure))
            return
        except Exception:
            log.exception("share_partition_initialization_failed", **self._names())
            self.feed(ev.InitializeFailed(UnknownServerError()))
            return
        self.feed(ev.Initialized(stored.state_epoch, start, stored.batches, resolved, self.config, stored.failures))
        if self.log.log_start_offset > start:
            self.feed(ev.LogStartMoved(self.log.log_start_offset))

    async def _read(self, generation: int) -> StoredState:
        stored = await self._persister.read(ReadState(self.key, self.log.epoch, generation))
        batches = on_the_leader(stored.batches, self._clock, self.config.delay_max_ms)
        return stored._replace(batches=batches)

    async def _read_initialised(self) -> StoredState:
        attempt = 1
        while True:
            try:
                return await self._read(self.core.generation)
            except PersisterError as failure:
                # The group coordinator may still be initialising it (PL-635).
                if not isinstance(failure.error, InvalidRequestError) or attempt == INITIALIZE_ATTEMPTS:
                    raise
            attempt += 1
            await asyncio.sleep(INITIALIZE_RETRY_S)

    def _kafka_error(self, failure: KafkaError | LogError | PersisterError) -> KafkaError:
        if isinstance(failure, KafkaError):
            return failure
        if isinstance(failure, LogError):
            return UnknownServerError(f"the topic log could not be read: {failure}")
        stored = failure.leader_epoch
        if isinstance(failure.error, FencedLeaderEpochError) and (stored is None or stored > self.log.epoch):
            # The store has a higher epoch than our claim: give up, and claim again above it (CM-13 `floor`). If it is
            # our own epoch, a successor of this object wrote it with a higher generation: we still lead.
            self._lease.give_up(f"fenced at {self.key.text}: {failure.error.message}", stored or 0)
        return failure.error

    async def _write(self, effect: fx.Persist, span: Span | None = None) -> None:
        write = WriteState(
            key=self.key,
            state_epoch=effect.state_epoch,
            leader_epoch=self.log.epoch,
            generation=effect.generation,
            start_offset=effect.start_offset,
            delivery_complete_count=effect.delivery_complete_count,
            batches=on_the_wall(effect.state_batches, self._clock) if effect.has_delays else effect.state_batches,
            stats=_stats_of_write(effect, self.log.high_watermark, self.config.delivery_count_limit),
            failures=effect.failures,
            trace=span,
        )
        try:
            await self._persister.write(write)
        except PersisterError as failure:
            error = self._kafka_error(failure)
            self.feed(ev.PersistFailed(effect.write_id, error, failure.outcome_unknown))
        except Exception:
            tracing.within(span, partial(log.exception, "state_write_failed", **self._names()))
            self.feed(ev.PersistFailed(effect.write_id, UnknownServerError(), outcome_unknown=True))
        else:
            self.feed(ev.Persisted(effect.write_id))

    async def _read_back(self, generation: int) -> None:
        try:
            stored = await self._read(generation)
        except PersisterError as failure:
            self.feed(ev.ReadBackFailed(generation, self._kafka_error(failure)))
        except Exception:
            log.exception("state_read_back_failed", **self._names())
            self.feed(ev.ReadBackFailed(generation, UnknownServerError()))
        else:
            self.feed(ev.ReadBack(generation, stored.state_epoch, stored.start_offset, stored.batches, stored.failures))

    # --- helpers

    def _tick(self, _: int) -> None:
        self.feed(ev.Tick(self.config))

    def _operation(self, on_result: OnResult) -> int:
        self._next_op += 1
        self._replies[self._next_op] = on_result
        return self._next_op

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_tasks(self) -> None:
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    def _names(self) -> dict[str, object]:
        names = {"group": self.key.group_id, "topic_id": topic_id_text(self.key.topic_id)}
        return {**names, "partition": self.key.partition, "epoch": self.log.epoch}


def _ignore(_: OperationResult) -> None:
    """The callback for operations whose result has no receiver (PL-521)."""


async def _initial_start_offset(topic_log: TopicLog, policy: str, wall_ms: int) -> int:
    """Return the start offset of a share-partition that has none stored, according to `policy`, its group's
    `share.auto.offset.reset`: latest, earliest or by_duration:<ISO-8601> (PL-605).

    `latest` is the high watermark at either isolation level. So is by_duration if no record is recent enough [P].
    Raises KafkaError if the log cannot be read.
    """
    if policy == EARLIEST:
        timestamp = OFFSET_EARLIEST
    elif policy.startswith(BY_DURATION):
        timestamp = max(0, wall_ms - duration_ms(policy.removeprefix(BY_DURATION)))
    else:
        timestamp = OFFSET_LATEST
    found = await topic_log.offset_for(timestamp)
    return topic_log.high_watermark if found is None else found.offset


def _stats_of_write(effect: fx.Persist, high_watermark: int, delivery_count_limit: int) -> WriteStats:
    """Return the statistics for a write of share-partition state (PM-20), which only the leader knows. Writes that
    release or archive records include the group's limit; other writes do not need it."""
    counters = effect.counters
    matters = effect.archived or counters.n_release or counters.n_given_back or counters.n_timeout or counters.n_limit
    limit = delivery_count_limit if matters else None
    return WriteStats(effect.cause, *counters, high_watermark, effect.speo, effect.write_id, limit, effect.archived)
