"""An operation that waits for its write (one Acknowledge or one session release): its commit and its roll-back.

Keeps the spans that it changed, and how. Records are addressed by offset, never by object, so that a batch that is
split while the write is outstanding still commits or rolls back (PL-001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kip932.failures import Failure
from kip932.ids import STATE_ACQUIRED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from partition_leader.share_partition.core.backoff import AT_ONCE, Retries
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.effects import NO_COUNTERS, AcquiredRange, Counters
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.spans import Span, is_dense, split_at
from partition_leader.share_partition.core.transitions import (
    COMMIT,
    DELAYED,
    END_DELAY,
    PENDING,
    REVERT,
    ROLL_BACK,
    ROLL_BACK_BELOW_START,
    ROLL_BACK_EXPIRED,
    STATE_MASK,
    TAKE_STORED,
    released_state,
)


@dataclass(slots=True)
class Operation:
    """One Acknowledge or one session release. `limit` and `dlq_enabled` are as of its start (PL-307).

    `dead_letters`: spans that go to the dead-letter queue, each with its cause. `archived`: ranges that are archived
    without a dead letter, each with its cause. `delays`: ascending spans that are delayed, each with the end of its
    delay (ms); None if there are none (PL-939). `taken_back`: spans whose delivery count it has lowered (PL-941).
    `failures`: why its member gives records up (PL-942); None if it does not say.
    `acknowledged`: how many records it acknowledges with each type, in the order of the types' values; at the end of a
    session, how many it releases. `member_id`: the acknowledging member; empty for the release at a session's end
    (PL-418).
    """

    op_id: int
    cause: int
    limit: int
    dlq_enabled: bool
    spans: list[Span] = field(default_factory=list)
    dead_letters: list[tuple[Span, str]] = field(default_factory=list)
    archived: list[tuple[AcquiredRange, str]] = field(default_factory=list)
    delays: list[tuple[Span, int]] | None = None
    taken_back: list[Span] = field(default_factory=list)
    failures: list[Failure] | None = None
    counters: Counters = NO_COUNTERS
    acknowledged: Sequence[int] = ()
    member_id: str = NO_MEMBER
    answered: bool = False


@dataclass(slots=True)
class RolledBack:
    """The changes of a roll-back that no write has stored yet (PL-307, PL-621)."""

    changed: list[Span] = field(default_factory=list)
    archiving: list[Span] = field(default_factory=list)
    archived: list[AcquiredRange] = field(default_factory=list)  # at the delivery limit
    delayed: int = 0


def commit(window: Window, spans: Sequence[Span]) -> None:
    """Give pending records of the ascending, disjoint spans their new state, because their write is durable, and remove
    their owners and locks (PL-412)."""
    for batch, parts in window.grouped(spans):
        if is_dense(parts):
            window.settle(batch, parts, COMMIT)
            continue
        for first, last in parts:
            if window.recode(batch, first, last, COMMIT):
                batch.hold(first, last, NO_MEMBER, 0)


def begin_delays(window: Window, operation: Operation, now_ms: int) -> int:
    """Start the delays of records whose release is now durable; a record whose delay is already over becomes Available
    (PL-933). Returns the number of these records."""
    begun = 0
    for span, until_ms in operation.delays or ():
        for batch in window.overlapping(*span):
            low, high = max(span[0], batch.first), min(span[1], batch.last)
            for first, last, code, _ in list(batch.runs(low, high)) if batch.delayed else ():
                if code == DELAYED:
                    begun += last - first + 1
                    window.delay(batch, first, last, until_ms)
                    if until_ms <= now_ms:
                        end_delay(window, batch, first, last)
    return begun


def end_delay(window: Window, batch: InFlightBatch, first: int, last: int) -> None:
    """Make delayed records Available again (PL-932)."""
    window.recode(batch, first, last, END_DELAY)
    batch.hold(first, last, NO_MEMBER, 0)


def roll_back(window: Window, operation: Operation, now_ms: int, into: RolledBack, retries: Retries = AT_ONCE) -> None:
    """Undo an operation whose write failed: records become Acquired again with their running lock (T19, PL-414). A
    record whose lock has expired meanwhile is released, with the back-off of `retries`; one that the start offset has
    passed is archived (PL-307)."""
    _restore_counts(window, operation)
    for batch, first, last in window.pieces(operation.spans):
        if batch.pending:
            _roll_back_batch(window, operation, now_ms, batch, (first, last), into, retries)


def _roll_back_batch(  # noqa: PLR0917 - one batch of the loop above
    window: Window,
    operation: Operation,
    now_ms: int,
    batch: InFlightBatch,
    span: Span,
    into: RolledBack,
    retries: Retries,
) -> None:
    for low, high, code, count, _, deadline in list(batch.lock_runs(*span)):
        if not code & PENDING:
            continue
        for first, last in split_at(low, high, window.start_offset):
            delay_ms = 0
            if last < window.start_offset:
                state, table = STATE_ARCHIVED, ROLL_BACK_BELOW_START
            elif deadline <= now_ms:
                state = released_state(count, operation.limit, operation.dlq_enabled)
                delay_ms = retries.delay_ms(count) if state == STATE_AVAILABLE else 0
                table = ROLL_BACK_EXPIRED[DELAYED if delay_ms else state]
                if state == STATE_ARCHIVED:
                    into.archived.append(AcquiredRange(first, last, count))
            else:
                window.recode(batch, first, last, ROLL_BACK)
                continue
            window.recode(batch, first, last, table)
            if delay_ms:
                window.delay(batch, first, last, now_ms + delay_ms)
                into.delayed += last - first + 1
            else:
                batch.hold(first, last, NO_MEMBER, 0)
            into.changed.append((first, last))
            if state == STATE_ARCHIVING:
                into.archiving.append((first, last))


def revert(window: Window, operation: Operation) -> None:
    """Undo an operation that was refused half-way. Call it only at the same instant as the operation, so that no lock
    can have ended (PL-410)."""
    _restore_counts(window, operation)
    for batch, first, last in window.pieces(operation.spans):
        window.recode(batch, first, last, REVERT)


def _restore_counts(window: Window, operation: Operation) -> None:
    """Restore the delivery counts that the operation lowered: its records are held as before (PL-941)."""
    for batch, first, last in window.pieces(operation.taken_back):
        for low, high, code, count in list(batch.runs(first, last)):
            if code & PENDING:
                batch.set_counts(low, high, count + 1)
                window.undelivered.undo(low, high)
    operation.taken_back = []


def force(  # noqa: PLR0917 - the stored values of a span
    window: Window, batch: InFlightBatch, span: Span, state: int, count: int, until_ms: int = 0
) -> None:
    """Give pending records the state, delivery count and end of their delay (ms; 0: none) that the coordinator has
    stored (PL-707)."""
    window.recode(batch, *span, TAKE_STORED[DELAYED if until_ms else state])
    batch.set_counts(*span, count)
    if until_ms:
        window.delay(batch, *span, until_ms)
    else:
        batch.hold(*span, NO_MEMBER, 0)


def state_of(code: int) -> int:
    """The state in a code, without its pending mark."""
    return code & STATE_MASK


def refusal_of(code: int, member: str, caller: str) -> str | None:
    """Return the reason why `caller` is not allowed to act on a record with this code and owner; None if it is (PL-406,
    PL-407)."""
    if code & PENDING:
        return "an earlier acknowledgement of it is still being written"
    if code == DELAYED:
        return "no member holds it any longer: its lock expired or it was released, and it waits to be retried"
    if code == STATE_AVAILABLE:
        return "no member holds it any longer: its lock expired or it was released"
    if code != STATE_ACQUIRED:
        return "it is already acknowledged or archived"
    return None if member == caller else "another member holds it"
