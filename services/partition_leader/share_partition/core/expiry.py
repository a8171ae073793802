"""Gives acquired records back: expired locks (T12, PL-303 … PL-307) and closed share sessions (T13, T14, PL-520).

Decides which records are due and which state they get, delayed ones too (PL-932). Expiry takes effect at once; a
session's release waits for its write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kip932.ids import ACK_RELEASE, STATE_ACQUIRED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from partition_leader.share_partition.core.archived import DELIVERY_LIMIT
from partition_leader.share_partition.core.backoff import Retries
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.effects import (
    CAUSE_SESSION_RELEASE,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    AcquiredRange,
    Counters,
)
from partition_leader.share_partition.core.events import Release
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.operations import Operation, end_delay
from partition_leader.share_partition.core.spans import Span, split_at
from partition_leader.share_partition.core.transitions import (
    CLOSE_SESSION,
    CLOSE_SESSION_BELOW_START,
    DELAYED,
    EXPIRE,
    EXPIRE_BELOW_START,
    released_state,
)
from shard_runtime.config.group_config import GroupConfig


@dataclass(slots=True)
class Expired:
    """The changes that ended locks made; all locks of one moment go into one write (PL-306)."""

    spans: list[Span] = field(default_factory=list)
    archiving: list[Span] = field(default_factory=list)
    archived: list[AcquiredRange] = field(default_factory=list)  # at the delivery limit
    timed_out: int = 0
    limited: int = 0
    delayed: int = 0  # of those that timed out
    delays_ended: bool = False


def expire(window: Window, now_ms: int, settings: GroupConfig, chance: Callable[[], float] = float) -> Expired:
    """End every lock and every delay due at `now_ms`. Pending records keep their deadline, and a roll-back compares it
    with the time (PL-307). `chance`: for the group's back-off (PL-936)."""
    result = Expired()
    retries = Retries(settings.backoff, chance)
    window.renewals.due(now_ms)  # expired renewals are no longer needed
    for _, first, last in window.locks.due(now_ms):
        for batch in window.overlapping(first, last):
            span = max(first, batch.first), min(last, batch.last)
            for low, high, code, count, _, deadline in _lock_runs(batch, span):
                if code == DELAYED and deadline <= now_ms:
                    end_delay(window, batch, low, high)
                    result.delays_ended = True
                if code != STATE_ACQUIRED or deadline > now_ms:
                    continue
                for start, end in split_at(low, high, window.start_offset):
                    wait_ms = retries.delay_ms(count)
                    until_ms = now_ms + wait_ms if wait_ms else 0
                    _expire_run(window, batch, (start, end, count), settings, until_ms, result)
    return result


def _lock_runs(batch: InFlightBatch, span: Span) -> list[tuple[int, int, int, int, str, int]]:
    return list(batch.lock_runs(*span)) if batch.closing < len(batch) else []


def _expire_run(  # noqa: PLR0917 - one run of the loop above; `until_ms`: the end of its delay, 0: none
    window: Window,
    batch: InFlightBatch,
    run: tuple[int, int, int],
    settings: GroupConfig,
    until_ms: int,
    result: Expired,
) -> None:
    first, last, count = run
    size = last - first + 1
    if last < window.start_offset:
        state, table = STATE_ARCHIVED, EXPIRE_BELOW_START
    else:
        state = released_state(count, settings.delivery_count_limit, settings.dlq_enabled)
        if state == STATE_AVAILABLE and until_ms:
            state = DELAYED
        table = EXPIRE[state]
        if state in (STATE_ARCHIVED, STATE_ARCHIVING):
            result.limited += size
        if state == STATE_ARCHIVED:
            result.archived.append(AcquiredRange(first, last, count))
    window.recode(batch, first, last, table)
    batch.hold(first, last, NO_MEMBER, 0)
    result.timed_out += size
    if state == DELAYED:
        window.delay(batch, first, last, until_ms)
        result.delayed += size
    result.spans.append((first, last))
    if state == STATE_ARCHIVING:
        result.archiving.append((first, last))


def release(window: Window, event: Release) -> Operation:
    """Begin to release the records that the member holds (T13; T14 below the start offset). The operation has no spans
    when the member holds nothing."""
    settings = event.settings
    operation = Operation(event.op_id, CAUSE_SESSION_RELEASE, settings.delivery_count_limit, settings.dlq_enabled)
    limited = released = 0
    for batch, span, wanted in _candidates(window, event):
        for low, high, code, count, member, _ in _lock_runs(batch, span):
            if code != STATE_ACQUIRED or member != event.member_id or wanted not in (None, count):
                continue
            for first, last in split_at(low, high, window.start_offset):
                state = released_state(count, operation.limit, operation.dlq_enabled)
                table = CLOSE_SESSION[state]
                if last < window.start_offset:
                    state, table = STATE_ARCHIVED, CLOSE_SESSION_BELOW_START
                elif state in (STATE_ARCHIVED, STATE_ARCHIVING):
                    limited += last - first + 1
                    if state == STATE_ARCHIVED:
                        operation.archived.append((AcquiredRange(first, last, count), DELIVERY_LIMIT))
                window.recode(batch, first, last, table)
                released += last - first + 1
                operation.spans.append((first, last))
                if state == STATE_ARCHIVING:
                    operation.dead_letters.append(((first, last), DLQ_DELIVERY_COUNT_EXCEEDED))
    operation.counters = Counters(n_given_back=released, n_limit=limited)
    if released:
        operation.acknowledged = [0] * ACK_RELEASE + [released]
    return operation


def _candidates(window: Window, event: Release) -> Iterable[tuple[InFlightBatch, Span, int | None]]:
    """Yield the batches and spans to search, and the only delivery count to release there; None for any."""
    if event.ranges is None:
        for batch in window.walk():
            if batch.codes is not None or batch.member == event.member_id:
                yield batch, (batch.first, batch.last), None
        return
    for first, last, count in event.ranges:
        for batch in window.overlapping(first, last):
            yield batch, (max(first, batch.first), min(last, batch.last)), count
