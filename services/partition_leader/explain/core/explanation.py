"""Finds out why a record is or is not delivered now, for ExplainRecord (PL-820 … PL-826).

Determines the state and the obstacle of each offset, from the window of a loaded share-partition, or else from the
state that the share coordinator has stored. It changes no state, lock or counter. The sentences are in
`explanation_words`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from kip932.failures import Failure
from kip932.ids import STATE_ACKNOWLEDGED, STATE_ACQUIRED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from kip932.state_values import StateSummary
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.partition_state import PartitionState
from partition_leader.share_partition.core.reasons import parts
from partition_leader.share_partition.core.room import room_for_new
from partition_leader.share_partition.core.spans import Span, normalized
from partition_leader.share_partition.core.transitions import DELAYED, PENDING, STATE_MASK
from partition_leader.share_partition.core.visibility import NO_TRANSACTION, TransactionPart, TransactionRole
from shard_runtime.config.group_config import GroupConfig

_LAST: Final = itemgetter(1)


class RecordState(StrEnum):
    """The state of a record for the group; explain_record.proto defines each value."""

    NONE = "none"
    AVAILABLE = "available"
    ACQUIRED = "acquired"
    PENDING = "pending"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVING = "archiving"
    ARCHIVED = "archived"
    FINISHED = "finished"
    DELETED = "deleted"
    BEYOND_END = "beyond_end"
    HOLE = "hole"
    NOT_INITIALIZED = "not_initialized"


class Obstacle(StrEnum):
    """The reason why a record is not delivered now; explain_record.proto defines each value."""

    NONE = "none"
    HELD = "held"
    WRITE_PENDING = "write_pending"
    WINDOW_FULL = "window_full"
    NOT_FETCHED = "not_fetched"
    NO_STATE = "no_state"
    START_NOT_SET = "start_not_set"
    LOADING = "loading"
    FINISHED = "finished"
    DELIVERY_LIMIT = "delivery_limit"
    REJECTED = "rejected"
    NO_RECORD = "no_record"
    UNCOMMITTED = "uncommitted"
    DELAYED = "delayed"


class WriteStage(StrEnum):
    """The stage of the write that a pending record waits for."""

    RUNNING = "running"
    QUEUED = "queued"  # behind the running write
    UNKNOWN = "unknown"  # its write got no response, so the stored state is read (PL-707)


class PendingWrite(NamedTuple):
    """The write that a record waits for. `running_ms`: the time since it was started; None if it is not running,
    because it is queued or got no response."""

    stage: WriteStage
    running_ms: int | None
    attempts: int


class KnownBatch(NamedTuple):
    """A batch of the log."""

    first: int
    last: int
    append_time_ms: int


class LogView(NamedTuple):
    """The log at this moment, and its batches that contain requested offsets, in order.

    `kept_by`: the transactional id of the open transaction that holds the last stable offset back, "" for none;
    `kept_ms`: how long that transaction has been open here. `parts`: the transaction roles of some of the batches, in
    order.
    """

    log_start: int
    high_watermark: int
    last_stable: int
    batches: Sequence[KnownBatch]
    kept_by: str = ""
    kept_ms: int = 0
    parts: Sequence[TransactionPart] = ()


class Question(NamedTuple):
    """The offsets to explain, and what the leader knows besides the share-partition.

    `fetching`: how many members have the partition in a session here. `write_attempts`: how many times the running
    write has been sent. `reset_policy`: the group's share.auto.offset.reset. `loading`: the share-partition is being
    loaded. `letters`: a sentence on how many dead letters are not written yet, and why; "" for none. `watched`: for
    some held offsets the member, the number of its delivery, and since when (ms) it has held them (PL-953).
    """

    group_id: str
    first: int
    last: int
    log: LogView
    settings: GroupConfig
    now_ms: int
    fetching: int = 0
    write_attempts: int = 0
    read_committed: bool = False
    reset_policy: str = "latest"
    loading: bool = False
    letters: str = ""
    watched: Mapping[int, tuple[str, int, int]] = MappingProxyType({})


class Fate(NamedTuple):
    """Consecutive offsets with the same fate. `delivery_count`: None if it is not tracked. `lock_ms`, `delay_ms`:
    remaining lock and delay; None when not locked or delayed. `beyond`: never fetched, so it needs a free record lock
    to be delivered. `taken_back`: how many times in a row its delivery was taken back (PL-941). `reason`: why a member
    last gave it up, at delivery count `reason_count`; "" and 0 if no reason is known (PL-944). `held_ms`: how long the
    member has held it in this delivery; None if that is not known."""

    first: int
    last: int
    state: RecordState
    obstacle: Obstacle = Obstacle.NONE
    delivery_count: int | None = None
    member: str = NO_MEMBER
    lock_ms: int | None = None
    renewed: bool = False
    becomes: RecordState = RecordState.NONE
    write: PendingWrite | None = None
    append_time_ms: int | None = None
    beyond: bool = False
    delay_ms: int | None = None
    role: TransactionRole = NO_TRANSACTION
    taken_back: int = 0
    reason: str = ""
    reason_count: int = 0
    held_ms: int | None = None

    @property
    def merge_key(self) -> tuple[object, ...]:
        """The fields that must be equal for neighbours to be joined."""
        return self._replace(first=0, last=0, append_time_ms=None)


def fates_loaded(state: PartitionState, asked: Question) -> list[Fate]:
    """Return the fate of each offset of a share-partition in memory."""
    window = state.window
    in_log, found = _outside(asked, window.start_offset)
    if in_log is not None:
        spans = _spans(asked)
        for fate in _with_reasons(_window_fates(state, asked, *in_log), state.reasons.failures):
            found += _on_the_log(fate, asked, spans)
    full = room_for_new(window, state.dead_letters, asked.settings) <= 0
    return joined(_with_obstacle(fate, asked, full) for fate in found)


def fates_stored(stored: StateSummary, asked: Question) -> list[Fate]:
    """Return the fates for a share-partition that is not in memory, from its stored state: no member holds anything."""
    if stored.start_offset < 0:
        obstacle = Obstacle.START_NOT_SET if stored.state_epoch else Obstacle.NO_STATE
        in_log, found = _outside(asked, -1)
        if in_log is not None:
            found += _on_the_log(Fate(*in_log, RecordState.NOT_INITIALIZED, obstacle), asked, _spans(asked))
        return joined(found)
    in_log, found = _outside(asked, stored.start_offset)
    if in_log is not None:
        spans = _spans(asked)
        for fate in _with_reasons(_stored_fates(stored, *in_log, asked.now_ms), stored.failures):
            found += _on_the_log(fate, asked, spans)
    return joined(_with_obstacle(fate, asked, full=False) for fate in found)


def _outside(asked: Question, start_offset: int) -> tuple[Span | None, list[Fate]]:
    """Return the requested span between the start offset and the log's end (None if empty), and the fates of the
    requested offsets outside it."""
    first, last, log = asked.first, asked.last, asked.log
    found: list[Fate] = []
    no_record = Obstacle.NO_RECORD
    if first < log.log_start:
        found.append(Fate(first, min(last, log.log_start - 1), RecordState.DELETED, no_record))
    low = max(first, log.log_start)
    if low < min(start_offset, last + 1):
        found.append(Fate(low, min(last, start_offset - 1), RecordState.FINISHED, Obstacle.FINISHED))
    low = max(low, start_offset)
    if last >= log.high_watermark and last >= low:
        found.append(Fate(max(low, log.high_watermark), last, RecordState.BEYOND_END, no_record))
    high = min(last, log.high_watermark - 1)
    return ((low, high) if low <= high else None), found


# The window of a share-partition in memory.


def _window_fates(state: PartitionState, asked: Question, low: int, high: int) -> Iterator[Fate]:
    window = state.window
    renewed = _renewed(window, low, high)
    unknown = normalized([span for operation in state.write_back.unresolved for span in operation.spans], low)
    at = low
    for batch in window.overlapping(low, high):
        first, last = max(batch.first, low), min(batch.last, high)
        if at < first:
            yield from _uncached(window, at, first - 1)
        for run in batch.lock_runs(first, last):
            yield from _run_fates(state, asked, run, renewed, unknown)
        at = last + 1
    if at <= high:
        yield from _uncached(window, at, high)


def fate_at(state: PartitionState, asked: Question, offset: int) -> Fate:
    """Return the fate of one offset of the window, whether it was asked for or not."""
    return next(_window_fates(state, asked, offset, offset))


def _renewed(window: Window, low: int, high: int) -> dict[int, list[Span]]:
    """Return the stretches whose lock was renewed, by the end of that lock."""
    by_end: dict[int, list[Span]] = {}
    for end, first, last in window.renewals.entries():
        if first <= high and low <= last:
            by_end.setdefault(end, []).append((first, last))
    return {end: normalized(spans, low) for end, spans in by_end.items()}


def _uncached(window: Window, first: int, last: int) -> Iterator[Fate]:
    """Yield the fates of offsets that no batch covers: holes in the log, offsets that the stored state does not cover
    (PL-606), and offsets beyond the window."""
    gap = window.open_gap
    inside = min(last, window.next_offset - 1)
    unsaid = inside + 1 if gap is None else max(first, min(gap[0], inside + 1))
    if first < unsaid:
        yield Fate(first, unsaid - 1, RecordState.HOLE, Obstacle.NO_RECORD)
    if max(first, unsaid) <= inside:
        yield Fate(max(first, unsaid), inside, RecordState.AVAILABLE, delivery_count=0)
    if max(first, inside + 1) <= last:
        yield Fate(max(first, inside + 1), last, RecordState.AVAILABLE, delivery_count=0, beyond=True)


def _run_fates(
    state: PartitionState,
    asked: Question,
    run: tuple[int, int, int, int, str, int],
    renewed: dict[int, list[Span]],
    unknown: Sequence[Span],
) -> Iterator[Fate]:
    first, last, code, count, member, deadline = run
    if code & PENDING:
        becomes = _STATES[code & STATE_MASK]
        for low, high, write in _writes(state, asked, unknown, first, last):
            yield Fate(
                low,
                high,
                RecordState.PENDING,
                Obstacle.WRITE_PENDING,
                count,
                member,
                max(0, deadline - asked.now_ms),
                becomes=becomes,
                write=write,
            )
    elif code == STATE_ACQUIRED:
        left = max(0, deadline - asked.now_ms)
        again = any(yes for _, _, yes in cut(first, last, renewed.get(deadline, ())))
        since_ms: int | None = deadline - asked.settings.lock_ms
        if again:
            since_ms = _watched_since(asked, first, last, (member, count))
        held_ms = None if since_ms is None else max(0, asked.now_ms - since_ms)
        yield Fate(first, last, RecordState.ACQUIRED, Obstacle.HELD, count, member, left, again, held_ms=held_ms)
    elif code == DELAYED:
        yield _delayed(first, last, count, deadline - asked.now_ms)
    elif code == STATE_AVAILABLE and state.window.undelivered:
        times = state.window.undelivered.times
        for often, some in groupby(range(first, last + 1), lambda offset: times(offset, count)):
            offsets = list(some)
            yield Fate(offsets[0], offsets[-1], _STATES[code], delivery_count=count, taken_back=often)
    else:
        yield Fate(first, last, _STATES[code], delivery_count=count)


def _watched_since(asked: Question, first: int, last: int, holder: tuple[str, int]) -> int | None:
    """Return since when (ms) a member has held records whose lock it has renewed, if one of them is watched."""
    since = (asked.watched[offset] for offset in asked.watched if first <= offset <= last)
    return min((ms for member, delivery, ms in since if (member, delivery) == holder), default=None)


def _delayed(first: int, last: int, count: int, left_ms: int) -> Fate:
    return Fate(first, last, RecordState.AVAILABLE, Obstacle.DELAYED, delivery_count=count, delay_ms=max(0, left_ms))


def _writes(
    state: PartitionState, asked: Question, unknown: Sequence[Span], first: int, last: int
) -> Iterator[tuple[int, int, PendingWrite]]:
    """Split pending offsets by the write that they wait for. `unknown`: the spans whose write got no response."""
    outstanding = state.write_back.outstanding
    for low, high, runs in cut(first, last, outstanding.spans if outstanding else ()):
        if runs and outstanding is not None:
            running_ms = max(0, asked.now_ms - outstanding.began_ms)
            yield low, high, PendingWrite(WriteStage.RUNNING, running_ms, max(1, asked.write_attempts))
            continue
        for begin, end, is_unknown in cut(low, high, unknown):
            yield begin, end, PendingWrite(WriteStage.UNKNOWN if is_unknown else WriteStage.QUEUED, None, 0)


def cut(first: int, last: int, spans: Sequence[Span]) -> Iterator[tuple[int, int, bool]]:
    """Cut `first`…`last` at the ascending, disjoint spans; yield each part, and whether it is inside one of them."""
    at = first
    for low, high in spans[bisect_left(spans, first, key=_LAST) :]:
        if low > last:
            break
        if at < low:
            yield at, low - 1, False
        yield max(at, low), min(high, last), True
        at = min(high, last) + 1
    if at <= last:
        yield at, last, False


# The stored state of a share-partition that is not in memory.


def _stored_fates(stored: StateSummary, low: int, high: int, now_ms: int) -> Iterator[Fate]:
    at = low
    for first, last, state, count, until_ms in stored.batches:
        if last < at or first > high:
            continue
        begin, end = max(first, at), min(last, high)
        if at < begin:
            yield Fate(at, begin - 1, RecordState.AVAILABLE, delivery_count=0)
        if state == STATE_AVAILABLE and until_ms > now_ms:
            yield _delayed(begin, end, count, until_ms - now_ms)
        else:
            yield Fate(begin, end, _STORED_STATES.get(state, RecordState.AVAILABLE), delivery_count=count)
        at = end + 1
    if at <= high:
        yield Fate(at, high, RecordState.AVAILABLE, delivery_count=0)


# For loaded and stored share-partitions.


def _spans(asked: Question) -> list[Span]:
    return [(batch.first, batch.last) for batch in asked.log.batches]


def _with_reasons(fates: Iterable[Fate], failures: Sequence[Failure]) -> Iterator[Fate]:
    """Split the fates where the reason changes, and add it (PL-944)."""
    for fate in fates:
        for first, last, count, reason in parts(fate.first, fate.last, failures):
            yield fate._replace(first=first, last=last, reason=reason, reason_count=count)


def _on_the_log(fate: Fate, asked: Question, spans: Sequence[Span]) -> Iterator[Fate]:
    """Split the fate where the log has no record: nothing can be delivered there, unless a member holds it. `spans`:
    the spans of the log's batches, computed once for all fates of a question."""
    batches = asked.log.batches
    at = bisect_left(spans, fate.first, key=_LAST)
    for first, last, exists in cut(fate.first, fate.last, spans):
        part = fate._replace(first=first, last=last)
        if exists:
            while batches[at].last < first:
                at += 1
            yield part._replace(append_time_ms=batches[at].append_time_ms)
        elif fate.obstacle in {Obstacle.HELD, Obstacle.WRITE_PENDING}:
            yield part
        else:
            yield Fate(first, last, RecordState.HOLE, Obstacle.NO_RECORD)


def _with_obstacle(fate: Fate, asked: Question, full: bool) -> Fate:
    return fate if fate.obstacle is not Obstacle.NONE else fate._replace(obstacle=_obstacle(fate, asked, full))


def _obstacle(fate: Fate, asked: Question, full: bool) -> Obstacle:
    if fate.state is RecordState.ARCHIVED:
        at_limit = (fate.delivery_count or 0) >= asked.settings.delivery_count_limit
        return Obstacle.DELIVERY_LIMIT if at_limit else Obstacle.REJECTED
    if fate.state is not RecordState.AVAILABLE:
        return Obstacle.FINISHED
    if asked.loading:
        return Obstacle.LOADING
    if asked.read_committed and fate.last >= asked.log.last_stable:
        return Obstacle.UNCOMMITTED
    if full and fate.beyond:
        return Obstacle.WINDOW_FULL
    return Obstacle.NONE if asked.fetching else Obstacle.NOT_FETCHED


def joined(fates: Iterable[Fate]) -> list[Fate]:
    """Sort the fates by offset, and join equal neighbours."""
    found: list[Fate] = []
    for fate in sorted(fates, key=lambda fate: fate.first):
        if found and found[-1].last + 1 == fate.first and found[-1].merge_key == fate.merge_key:
            found[-1] = found[-1]._replace(last=fate.last)
        else:
            found.append(fate)
    return found


def front(state: PartitionState) -> tuple[int, InFlightBatch] | None:
    """Return the first cached offset at or above the start offset, which holds the start offset back, and its batch;
    None if nothing is cached."""
    window = state.window
    if window.is_empty:
        return None
    offset = max(window.first_offset, window.start_offset)
    batch = window.floor(offset)
    return None if batch is None else (offset, batch)


_STATES: Final = {
    STATE_AVAILABLE: RecordState.AVAILABLE,
    STATE_ACQUIRED: RecordState.ACQUIRED,
    STATE_ACKNOWLEDGED: RecordState.ACKNOWLEDGED,
    STATE_ARCHIVING: RecordState.ARCHIVING,
    STATE_ARCHIVED: RecordState.ARCHIVED,
}
#: Acquired is never stored; if it is read nevertheless, no member holds the record any longer (PL-101).
_STORED_STATES: Final = _STATES | {STATE_ACQUIRED: RecordState.AVAILABLE}
