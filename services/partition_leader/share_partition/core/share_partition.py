"""The core of one share-partition: every event goes in through `handle`, and effects come out (KIP-932).

Owns the fetch lock, and the order inside one critical section: locks that are due, the event, the start offset
(PL-120), the next write (PL-705). The rules themselves are in the sibling modules, except for loading the stored state
and moving the start offset when the log start moves. It never waits, reads no clock and calls no service: `Persist`
goes out, `Persisted` comes in, and only then `Reply` comes out (PL-412).

The host calls `handle` serially (PL-003) and carries the effects out in their order. It arms one timer for
`next_deadline()`, and sends `Tick` when that fires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from kip932.errors import InvalidRecordStateError, InvalidRequestError, UnknownServerError
from kip932.ids import BATCH_RECORDS_MAX, STATE_ACQUIRED, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import events, write_results
from partition_leader.share_partition.core.acknowledge import Acknowledgement
from partition_leader.share_partition.core.acquire import AcquirePass
from partition_leader.share_partition.core.advance import advance, committed
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.effects import (
    CAUSE_DLQ,
    CAUSE_LOCK_EXPIRY,
    Acquired,
    Counters,
    Effect,
    ReadLog,
    Wake,
)
from partition_leader.share_partition.core.events import Event, TakeFetchLock
from partition_leader.share_partition.core.expiry import expire, release
from partition_leader.share_partition.core.failures import meaning
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.limits import LIMITS, Limits
from partition_leader.share_partition.core.operations import Operation
from partition_leader.share_partition.core.partition_state import PartitionState
from partition_leader.share_partition.core.pieces import records_of
from partition_leader.share_partition.core.removal import skip_hole
from partition_leader.share_partition.core.room import delayed_full, join_settled, room_for_new
from partition_leader.share_partition.core.status import (
    DelayCause,
    Delays,
    DropReason,
    Overview,
    PartitionMetrics,
    Status,
)
from partition_leader.share_partition.core.transitions import (
    DELAYED,
    KNOWN_STATES,
    LOG_START_MOVED,
    IllegalTransitionError,
)
from shard_runtime.config.group_config import GroupConfig

OPERATION_TIMEOUT_MS: Final = 15_000  # persister.operation.timeout.ms (PL-723)
_SETTLED = (Status.FAILED, Status.FENCED)
_WAKE: Final = Wake()
#: The maximum number of in-flight offsets that a stored state may span. Before CM-112, batches with a false length left
#: spans of up to 2^31.
_STORED_SPAN_MAX: Final = 2**32


class SharePartition:
    """The live state of one share-partition on its leader.

    A fresh object is INITIALIZING: the host reads the stored state and sends `Initialized` or `InitializeFailed`.
    Retiring takes at most `operation_timeout_ms` (PL-631). `chance`: returns random numbers in 0…1 for back-offs
    (PL-936). `limits`: sizes at which it drops or joins entries in memory.
    """

    def __init__(
        self,
        generation: int,
        name: str = "share-partition",
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        chance: Callable[[], float] = float,
        limits: Limits = LIMITS,
    ) -> None:
        self._state = PartitionState(name, generation, operation_timeout_ms, chance, limits)
        self._fetch_lock: int | None = None
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            events.Initialized: self._initialized,
            events.InitializeFailed: self._initialize_failed,
            events.Acquire: self._acquire,
            events.Acknowledge: self._acknowledge,
            events.Release: self._release,
            events.LogStartMoved: self._log_start_moved,
            events.HoleFound: self._hole_found,
            events.Persisted: partial(write_results.persisted, self._state),
            events.PersistFailed: partial(write_results.persist_failed, self._state),
            events.ReadBack: partial(write_results.read_back, self._state),
            events.ReadBackFailed: partial(write_results.read_back_failed, self._state),
            events.Tick: self._tick,
            events.SettingsChanged: self._settings_changed,
            events.DlqDone: self._dlq_done,
            events.DlqPostponed: self._dlq_postponed,
            events.Retire: self._retire,
            events.Drop: self._drop,
        }

    # Handling events.

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event at `now_ms` (monotonic, ms); return the effects that must happen now, in order.

        Raises IllegalTransitionError if a record is in a state that the event must not encounter (PL-102). You must
        then call `give_up`.
        """
        if type(event) is TakeFetchLock:  # it touches no record and starts every fetch: it needs no critical section
            return self._take_fetch_lock(event)
        if type(event) is events.ReleaseFetchLock:  # nothing may keep a fetch from releasing its lock (PL-206)
            if self._fetch_lock != event.fetch_id:
                return []
            self._fetch_lock = None
            return [_WAKE]
        state = self._state
        state.effects, state.wake, state.now_ms = [], False, now_ms
        settings = getattr(event, "settings", None)
        if settings is not None:
            state.settings = settings
        if state.status is Status.ACTIVE:
            self._expire()
        self._handlers[type(event)](event)
        self._conclude()
        return state.effects

    def give_up(self, error: IllegalTransitionError) -> list[Effect]:
        """End this object after `handle` raised `error`, because its memory is wrong (PL-102); return the effects that
        must happen now, in order. The next fetch creates a new object, which loads the stored state."""
        state = self._state
        state.effects, state.wake = [], False
        if state.status not in _SETTLED:
            state.stop(UnknownServerError(str(error)), DropReason.ILLEGAL_TRANSITION)
        self._conclude()
        return state.effects

    def check(self) -> None:
        """For tests: raise BrokenInvariantError if, after an event, memory contradicts itself (`Window.check`)."""
        state = self._state
        state.window.check(state.now_ms if state.status is Status.ACTIVE else None)

    def next_deadline(self) -> int | None:
        """Return when to send `Tick` (ms); None if nothing is timed."""
        state = self._state
        if state.status is Status.RETIRING:
            return state.retirement.until_ms if state.retirement else None
        if state.status is not Status.ACTIVE:
            return None
        lock, write = state.window.next_lock_end(), state.write_back.next_deadline()
        if lock is None or write is None:
            return write if lock is None else lock
        return min(lock, write)

    def overview(self) -> Overview:
        """Return a snapshot of this share-partition, without the holders of locks, for tests. The cost grows with the
        records in flight."""
        state = self._state
        window, progress = state.window, committed(state.window)
        return Overview(
            state.status,
            state.state_epoch,
            state.generation,
            window.start_offset,
            window.end_offset,
            progress.delivery_complete_count,
            window.in_flight,
            window.batch_count,
            window.open_gap,
            self._fetch_lock,
            state.write_back.outstanding is not None,
            len(state.write_back.queued),
            len(state.write_back.dirty.spans),
            state.locks_expired,
            records_of(window.walk(), window.start_offset),
        )

    # Queries; they change nothing.

    @property
    def state(self) -> PartitionState:
        """The state, for code that describes it; only `handle` changes it."""
        return self._state

    @property
    def status(self) -> Status:
        """The phase of the object's life (PL-601)."""
        return self._state.status

    @property
    def generation(self) -> int:
        """The generation that reads and writes carry now; a successor uses a higher one (PL-602)."""
        return self._state.generation

    @property
    def start_offset(self) -> int:
        """The start offset, Kafka's SPSO: all records before it are finished."""
        return self._state.window.start_offset

    @property
    def speo(self) -> int:
        """The first offset never fetched (PL-005)."""
        return self._state.window.next_offset

    @property
    def fetch_lock(self) -> int | None:
        """The id of the fetch that has the fetch lock; None if it is free."""
        return self._fetch_lock

    @property
    def in_flight(self) -> int:
        """The number of offsets in flight, including finished records and gaps between them (PL-130)."""
        return self._state.window.in_flight

    def numbers(self) -> PartitionMetrics:
        """Return the current values of its metrics."""
        window = self._state.window
        undelivered = window.undelivered
        return PartitionMetrics(
            window.in_flight, window.batch_count, self._state.locks_expired, undelivered.granted, undelivered.refused
        )

    @property
    def not_taken_back(self) -> int:
        """The number of records whose release counted as a delivery, because too many deliveries in a row were taken
        back (PL-941)."""
        return self._state.window.undelivered.refused

    def dead_letters_full(self, settings: GroupConfig) -> bool:
        """Return whether unwritten dead letters keep new records from being acquired (PL-916)."""
        return self._state.dead_letters.is_full(self._state.window, settings)

    def delays(self) -> Delays:
        """Return how many records are delayed, and how many ever were (PL-932, PL-938). `counts` is False once this
        object is dropped."""
        window = self._state.window
        counts = window.counts_records and self._state.status not in _SETTLED
        return Delays(counts, window.delayed, window.batch_count, self._state.delayed_by)

    def delayed_full(self, settings: GroupConfig) -> bool:
        """Return whether delayed records keep new ones from being acquired (PL-935)."""
        return delayed_full(self._state.window, settings)

    def next_fetch_offset(self) -> int:
        """Return where the next log read starts (PL-202): the lowest offset that is Available or in an unresolved hole;
        if there is none, the first offset never fetched."""
        window = self._state.window
        available, gap = window.first_available(), window.open_gap
        if gap is not None:
            return gap[0] if available is None else min(available, gap[0])
        return window.next_offset if available is None else available

    def can_acquire(self, settings: GroupConfig) -> bool:
        """Return whether records could be acquired: it is ACTIVE, and has an older record to redeliver or a free record
        lock (PL-131)."""
        state = self._state
        if state.status is not Status.ACTIVE:
            return False
        return self.room(settings) > 0 or self.next_fetch_offset() != state.window.end_offset + 1

    def room(self, settings: GroupConfig) -> int:
        """Return how many new records may be acquired (PL-131); 0 or less for none."""
        return room_for_new(self._state.window, self._state.dead_letters, settings)

    def can_fetch(self, settings: GroupConfig) -> bool:
        """Return whether a fetch could get the fetch lock now: it is free, and records could be acquired (PL-206)."""
        return self._fetch_lock is None and self.can_acquire(settings)

    # Every critical section starts with the record locks that are due, and ends with the start offset and the write.

    def _expire(self) -> None:
        state = self._state
        if not state.window.locks.is_due(state.now_ms):
            return
        expired = expire(state.window, state.now_ms, state.settings, state.chance)
        state.wake |= expired.delays_ended
        if not expired.timed_out:
            return
        state.locks_expired += expired.timed_out
        state.delayed_by[DelayCause.LOCK_EXPIRED] += expired.delayed
        counters = Counters(n_timeout=expired.timed_out, n_limit=expired.limited)
        state.write_back.note(expired.spans, CAUSE_LOCK_EXPIRY, counters, urgent=True)
        state.write_back.dirty.archiving += expired.archiving
        state.write_back.dirty.archived += expired.archived
        state.give_up(expired.archived, expired.archiving)
        state.wake = True

    def _conclude(self) -> None:
        state = self._state
        if state.status is Status.ACTIVE:
            state.wake |= advance(state.window)
            if state.write_back.is_due(state.window, state.now_ms):
                state.persist()
        elif state.status is Status.RETIRING:
            if state.write_back.is_free and state.write_back.has_work:
                advance(state.window)
                state.persist()
            elif state.write_back.is_free and not state.dead_letters:
                state.finish()
        if state.wake:
            state.effects.append(_WAKE)

    # Initialisation.

    def _initialized(self, event: events.Initialized) -> None:
        state = self._state
        if state.status is not Status.INITIALIZING or state.write_back.outstanding:
            return
        try:
            state.window = load_window(event.start_offset, event.batches, state.now_ms, state.window.limits)
        except UnknownServerError as error:
            state.fail(error)
            return
        state.state_epoch = event.state_epoch
        state.reasons.add(event.failures, event.start_offset)
        if event.resolved:
            state.effects.append(state.write_back.build_init(state.window, state.generation, state.state_epoch))
            return
        state.write_back.confirm_start(event.start_offset)
        if state.window.is_empty:
            # No batches are stored, so what the store has equals this progress.
            state.write_back.last_written = committed(state.window)
        state.activate()

    def _initialize_failed(self, event: events.InitializeFailed) -> None:
        state = self._state
        if state.status is Status.INITIALIZING:
            state.fail(meaning(event.error).error)

    # Fetch and acknowledge.

    def _take_fetch_lock(self, event: TakeFetchLock) -> list[Effect]:
        """Take the fetch lock for one fetch, if possible (PL-206). Its read covers the window in flight and
        `max_records` more offsets, since no more can be acquired from it."""
        fetch_id, max_records, settings = event
        if self._fetch_lock is not None or not self.can_acquire(settings):
            return []
        self._fetch_lock = fetch_id
        first = self.next_fetch_offset()
        return [ReadLog(fetch_id, first, max(0, self._state.window.next_offset - first) + max_records)]

    def _release_fetch_lock(self, event: events.Acquire) -> None:
        """Release the fetch lock if this fetch has it, and let the next waiter try, whether or not records were
        acquired (PL-214)."""
        if self._fetch_lock == event.fetch_id:
            self._fetch_lock = None
            self._state.wake = True

    def _acquire(self, event: events.Acquire) -> None:
        state = self._state
        self._release_fetch_lock(event)
        if state.status is not Status.ACTIVE:
            state.effects.append(Acquired(event.fetch_id, ()))
            return
        join_settled(state.window)
        acquire = AcquirePass(state.window, event, state.now_ms, self.room(event.settings))
        ranges = acquire.run()
        state.write_back.note(acquire.archived)
        state.effects.append(Acquired(event.fetch_id, ranges))

    def _acknowledge(self, event: events.Acknowledge) -> None:
        state = self._state
        if state.status in (Status.RETIRING, *_SETTLED):
            state.reply(event.op_id, state.gone())
            return
        try:
            operation = Acknowledgement(state.window, state.given_up, event, state.now_ms, state.chance).run()
        except (InvalidRequestError, InvalidRecordStateError) as error:
            state.reply(event.op_id, error)
            return
        self._queue(operation, self._needs_the_start_offset(event))

    def _needs_the_start_offset(self, event: events.Acknowledge) -> bool:
        """Return whether the acknowledgement looks redundant only because of a start offset that is not persisted yet.
        If it were answered before that write, a successor could deliver the records again (PL-404)."""
        state = self._state
        start, confirmed = state.window.start_offset, state.write_back.confirmed_start
        return start > confirmed and any(
            batch.first_offset < start and batch.last_offset >= confirmed for batch in event.batches
        )

    def _release(self, event: events.Release) -> None:
        state = self._state
        if state.status in _SETTLED:
            state.reply(event.op_id, state.gone())
            return
        self._queue(release(state.window, event))

    def _queue(self, operation: Operation, needs_a_write: bool = False) -> None:
        state = self._state
        if operation.spans or needs_a_write:
            state.write_back.queued.append(operation)
        else:
            state.succeed(operation)  # PL-411: nothing to write

    def _log_start_moved(self, event: events.LogStartMoved) -> None:
        state = self._state
        if state.status is Status.ACTIVE:
            state.write_back.confirm_start(event.log_start_offset)
            state.wake |= move_log_start(state.window, event.log_start_offset)

    def _hole_found(self, event: events.HoleFound) -> None:
        state = self._state
        if state.status is Status.ACTIVE:
            state.write_back.note(skip_hole(state.window, event.fetch_offset, event.end))

    # Time, settings, the dead-letter queue.

    def _tick(self, _: events.Tick) -> None:
        state = self._state
        if state.status is Status.RETIRING and state.retirement and state.now_ms >= state.retirement.until_ms:
            state.stop(state.retirement.error, state.retirement.reason)

    def _settings_changed(self, _: events.SettingsChanged) -> None:
        self._state.wake = True

    def _dlq_done(self, event: events.DlqDone) -> None:
        state = self._state
        spans = state.dead_letters.finish(state.window, event.dead_letter_id, event.spans)
        if spans:
            state.write_back.note(spans, CAUSE_DLQ, urgent=True)
            state.wake = True

    def _dlq_postponed(self, event: events.DlqPostponed) -> None:
        self._state.dead_letters.postpone(event.dead_letter_id, event.spans)

    # The end.

    def _retire(self, event: events.Retire) -> None:
        state = self._state
        if state.status is Status.ACTIVE:
            state.write_back.request_start_write(state.window)
            state.begin_retirement(event.error, DropReason.RELEASED)
        elif state.status is Status.INITIALIZING:
            state.stop(event.error, DropReason.RELEASED)

    def _drop(self, event: events.Drop) -> None:
        state = self._state
        if state.status not in _SETTLED:
            state.stop(event.error, DropReason.LEADERSHIP_LOST)


def load_window(start_offset: int, batches: Iterable[StateBatch], now_ms: int = 0, limits: Limits = LIMITS) -> Window:
    """Return a window with every stored batch, held by no member (PL-604 … PL-608, PL-611).

    Batches that exceed the maximum length of a record batch are split, so that no array is longer than that (CM-112).
    Their `not_before_ms` are on the clock of `now_ms` (PL-934). Raises UnknownServerError for state that violates
    PL-604: a batch below the start offset, too far after it, backwards, overlapping another, or in an unknown state.
    """
    window = Window(start_offset, limits)
    following = start_offset
    hole: int | None = None
    for batch in sorted(batches):
        first, last, state, count, until = batch
        if first < start_offset or last < first or state not in KNOWN_STATES or first < following:
            raise UnknownServerError(
                f"stored state batch {first}-{last} (state {state}, count {count}) cannot be loaded: expected a known "
                f"state and offsets from {following} on, start offset {start_offset}; read the share-partition's "
                "state again, and inspect its entries if this stays"
            )
        if last - start_offset > _STORED_SPAN_MAX:
            raise UnknownServerError(
                f"stored state batch {first}-{last} ends {last - start_offset} offsets after the start offset "
                f"{start_offset}; at most {_STORED_SPAN_MAX} can be in flight: inspect the share-partition's entries"
            )
        if first > following and hole is None:
            hole = following
        code = STATE_AVAILABLE if state == STATE_ACQUIRED else state  # PL-101
        for low in range(first, last + 1, BATCH_RECORDS_MAX):
            high = min(low + BATCH_RECORDS_MAX - 1, last)
            if code == STATE_AVAILABLE and until > now_ms:
                window.add(InFlightBatch(low, high, DELAYED, count, deadline=until))
                window.lock(low, high, until)
            else:
                window.add(InFlightBatch(low, high, code, count))
        if until:
            window.note_delayed(last)
        following = last + 1
    if not window.is_empty:
        window.end_offset = window.last_offset
        if hole is not None:
            window.gap = (hole, window.end_offset)
    return window


def move_log_start(window: Window, log_start_offset: int) -> bool:
    """Raise the start offset to the log start, which retention or DeleteRecords has moved (PL-620, T16); return whether
    anything changed. A lower or equal log start changes nothing (12.10). Acquired records below it stay with their
    holder until they are acknowledged, released or expired (PL-622)."""
    if log_start_offset <= window.start_offset:
        return False
    if not window.is_empty:
        gap = window.open_gap
        for batch in window.overlapping(window.start_offset, log_start_offset - 1):
            high = min(batch.last, log_start_offset - 1)
            for first, last, code, _ in list(batch.runs(batch.first, high)):
                if LOG_START_MOVED[code] != code:
                    window.recode(batch, first, last, LOG_START_MOVED)
                    batch.hold(first, last, NO_MEMBER, 0)
        window.move_start(log_start_offset)
        window.gap = None
        if gap is not None and not window.is_empty:
            window.note_gap(max(gap[0], log_start_offset), gap[1])
    else:
        window.move_start(log_start_offset)
    return True
