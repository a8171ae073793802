"""Describes a record's fate in words, for a person who waits for it: what holds it up, until when, and what happens
next (PL-823).

All numbers in a sentence are from the same moment. Programs should not parse the sentences: they read the fields.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from partition_leader.explain.core.explanation import Fate, Obstacle, Question, RecordState, WriteStage
from partition_leader.share_partition.core.undelivered import IN_A_ROW_MAX
from partition_leader.share_partition.core.visibility import TransactionKind

_PASSED_OVER: Final = {
    TransactionKind.MARKER: "is a transaction's marker, and no record; the group moves over it",
    TransactionKind.ABORTED: "belongs to an aborted transaction; a group that reads committed records only passes it "
    "over",
}
_RECORD_LOCKS_CONFIG: Final = "share.partition.max.record.locks"
_DELIVERY_LIMIT_CONFIG: Final = "share.delivery.count.limit"


class Place(NamedTuple):
    """The share-partition that the records are in. `front`: what holds the start offset back, "" for nothing.

    `next_fetch`: where the next fetch starts. `end`: the first offset never fetched. `letters_full`: whether dead
    letters keep new records from being delivered (PL-916). `delayed_full`: whether the delayed records, `delayed` of
    them, do so (PL-935). `only_rejects`: whether records were archived by rejection and none at the delivery limit;
    False if that is not known.
    """

    loaded: bool
    start: int
    end: int
    in_flight: int
    next_fetch: int
    front: str = ""
    letters_full: bool = False
    delayed_full: bool = False
    delayed: int = 0
    only_rejects: bool = False


def words(fate: Fate, asked: Question, place: Place) -> str:
    """Describe the fate in one sentence."""
    text = _BY_OBSTACLE[fate.obstacle](fate, asked, place)
    return text[0].upper() + text[1:] + "."


def span_of_time(duration_ms: int) -> str:
    """Format a duration for a person."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms < 120_000:
        return f"{duration_ms / 1_000:.1f} s"
    return f"{duration_ms // 60_000} min {duration_ms // 1_000 % 60} s"


def held(fate: Fate, asked: Question) -> str:
    """Describe who holds a record and since when, and what happens when the lock ends."""
    count, lock_ms, renewed = fate.delivery_count or 0, fate.lock_ms or 0, fate.renewed
    limit = asked.settings.delivery_count_limit
    after = "it is archived then" if count >= limit else "it is delivered again then"
    left = f"the lock ends in {span_of_time(lock_ms)}" if lock_ms else "the lock has just run out"
    again = ", and was renewed" if renewed else ""
    until = "acknowledged or renewed again" if renewed else "acknowledged"
    holds = "holds it" if fate.held_ms is None else f"has held it for {span_of_time(fate.held_ms)}"
    return f"member {fate.member} {holds}, delivery {count} of {limit}; {left}{again}; {after} unless it is {until}"


def _deliverable(fate: Fate, asked: Question, place: Place) -> str:
    count = fate.delivery_count or 0
    fetch = "the next fetch of a member may get it; one that is busy asks for none"
    if fate.first > place.next_fetch:
        fetch = f"it comes after earlier records; the next fetch begins at offset {place.next_fetch}"
    if count >= max(2, (asked.settings.delivery_count_limit + 1) // 2):
        fetch += "; it has failed often, so it is delivered with few others or alone"  # PL-240
    return f"{_available(fate, asked)}; {fetch}"


def _delayed(fate: Fate, asked: Question, place: Place) -> str:
    left = f"{span_of_time(fate.delay_ms or 0)} left"
    return f"waits until its delay ends ({left}), after {fate.delivery_count} of {_limit(asked)} deliveries"


def _limit(asked: Question) -> int:
    return asked.settings.delivery_count_limit


def _available(fate: Fate, asked: Question) -> str:
    count, limit = fate.delivery_count or 0, asked.settings.delivery_count_limit
    if fate.taken_back:
        often = "once" if fate.taken_back == 1 else f"{fate.taken_back} times in a row"
        return (
            f"available, after {count} of {limit} deliveries; a member gave it back unseen {often}, which does not "
            f"count as a delivery until that has happened {IN_A_ROW_MAX} times"
        )
    if not count:
        return "available, and no delivery of it is known"
    if count >= limit:
        allowed = f"as many as {_DELIVERY_LIMIT_CONFIG} allows ({limit})"
        return f"available after {count} deliveries, {allowed}: it is delivered once more"
    return f"available again, after {count} of {limit} deliveries"


def _not_fetched(fate: Fate, asked: Question, place: Place) -> str:
    if place.loaded:
        why = "no member is currently fetching this partition from its leader"
    else:
        why = (
            "no member has fetched this partition since its leader took over, or since the last member that did left "
            f"or lost its connection, so no member holds it; stored start offset {place.start}"
        )
    return f"{_available(fate, asked)}; {why}"


def _window_full(fate: Fate, asked: Question, place: Place) -> str:
    if place.delayed_full:
        return (
            f"no new records are delivered while so many wait for the end of a delay ({place.delayed}; "
            f"sharegroups.retry.delayed.max is {asked.settings.delayed_max})"
        )
    if place.letters_full:
        return f"no new records are delivered while so many dead letters wait: {asked.letters}"
    return (
        f"the window has {place.in_flight} offsets, finished ones included, and {_RECORD_LOCKS_CONFIG} allows "
        f"{asked.settings.max_record_locks}; new records follow when the start offset {place.start} moves: "
        f"{place.front or 'nothing is known to hold it back'}"
    )


def _pending(fate: Fate, asked: Question, place: Place) -> str:
    kind = "its release" if fate.becomes is RecordState.AVAILABLE else "its acknowledgement"
    write = fate.write
    if write is None or write.stage is WriteStage.QUEUED:
        return f"{kind} waits for the write before it; {fate.becomes} after its own"
    if write.stage is WriteStage.UNKNOWN:
        return f"{kind} was sent and not answered; the leader reads what is stored before anything else"  # PL-707
    times = "once" if write.attempts == 1 else f"{write.attempts} times"
    running = span_of_time(write.running_ms or 0)
    return f"{kind} is being written for {running}, sent {times}; {fate.becomes} when the share coordinator confirms it"


def _finished(fate: Fate, asked: Question, place: Place) -> str:
    if fate.state is RecordState.FINISHED:
        kind = fate.role.kind
        return (
            f"the group is finished with everything before its start offset {place.start}; this {_PASSED_OVER[kind]}"
            if kind in _PASSED_OVER
            else f"the group is finished with everything before its start offset {place.start}: accepted, rejected or "
            "given up, or older than the place where the group began"
        )
    if fate.state is RecordState.ARCHIVING:
        why = f"; {asked.letters}" if asked.letters else ""
        return f"it is on its way to the dead-letter queue, and is not delivered again{why}"
    return f"accepted, at delivery {fate.delivery_count}; it is not delivered again"


def _no_record(fate: Fate, asked: Question, place: Place) -> str:
    log = asked.log
    if fate.role.kind in _PASSED_OVER:
        return f"this {_PASSED_OVER[fate.role.kind]}"
    if fate.state is RecordState.DELETED:
        return f"the log begins at offset {log.log_start}: the record was deleted, by retention or on request"
    if fate.state is RecordState.BEYOND_END:
        return f"nothing is written there yet; the next record gets offset {log.high_watermark}"
    return "the log has no record at this offset; the group moves over it"


def _start_not_set(fate: Fate, asked: Question, place: Place) -> str:
    return (
        "the group has no start offset in this partition yet; the first fetch sets it by share.auto.offset.reset, "
        f"which is {asked.reset_policy}"
    )


def _no_state(fate: Fate, asked: Question, place: Place) -> str:
    return (
        f"group {asked.group_id!r} has not started on this partition: there is no such group, or none of its members "
        "has subscribed to the topic yet"
    )


def _limit_reached(fate: Fate, asked: Question, place: Place) -> str:
    limit = asked.settings.delivery_count_limit
    count = f"{fate.delivery_count} deliveries ({_DELIVERY_LIMIT_CONFIG} is {limit})"
    return f"archived after {count}; it is not delivered again"


def _rejected(fate: Fate, asked: Question, place: Place) -> str:
    if place.only_rejects:
        return f"archived at delivery {fate.delivery_count}, because a member rejected it; it is not delivered again"
    return (
        f"archived at delivery {fate.delivery_count}, because a member rejected it or {_DELIVERY_LIMIT_CONFIG} was "
        "lower then; it is not delivered again"
    )


def _uncommitted(fate: Fate, asked: Question, place: Place) -> str:
    log, role = asked.log, fate.role
    if role.kind is TransactionKind.OPEN:
        return (
            f"it is part of the open transaction of transactional id {role.transactional_id!r}, open for "
            f"{span_of_time(role.open_ms)}; the group reads committed records only: it comes when that commits, and is "
            "passed over when it aborts, at its transaction.timeout.ms at the latest"
        )
    return (
        f"{_available(fate, asked)}; the group reads committed records only, and offset {fate.first} is not before the "
        f"last stable offset {log.last_stable}, kept by transactional id {log.kept_by!r}, open for "
        f"{span_of_time(log.kept_ms)}; it follows when that ends, at its transaction.timeout.ms at the latest"
    )


_BY_OBSTACLE: Final = {
    Obstacle.NONE: _deliverable,
    Obstacle.HELD: lambda fate, asked, place: held(fate, asked),
    Obstacle.WRITE_PENDING: _pending,
    Obstacle.WINDOW_FULL: _window_full,
    Obstacle.NOT_FETCHED: _not_fetched,
    Obstacle.NO_STATE: _no_state,
    Obstacle.START_NOT_SET: _start_not_set,
    Obstacle.LOADING: lambda fate, asked, place: f"{_available(fate, asked)}; the leader is loading the group's state",
    Obstacle.FINISHED: _finished,
    Obstacle.DELIVERY_LIMIT: _limit_reached,
    Obstacle.REJECTED: _rejected,
    Obstacle.NO_RECORD: _no_record,
    Obstacle.UNCOMMITTED: _uncommitted,
    Obstacle.DELAYED: _delayed,
}
