"""An operation that waits for its write, one Acknowledge or one session release: its commit and its roll-back.

Owns which spans it changed and how. Records are addressed by offset, never by object, so that a batch that is split
while the write is outstanding still commits or rolls back (PL-001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kip932.ids import STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from partition_leader.share.core.batch import NOBODY, InFlightBatch
from partition_leader.share.core.effects import NO_COUNTERS, AcquiredRange, Counters
from partition_leader.share.core.in_flight import Window
from partition_leader.share.core.spans import Span, is_dense
from partition_leader.share.core.transitions import (
    COMMIT,
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
    """`limit` and `dlq_enabled` are those of the moment it started (PL-307). `dead_letters` holds the spans that go to
    the dead-letter queue, `archived` the ranges that are archived without one, each with its cause."""

    op_id: int
    cause: int
    limit: int
    dlq_enabled: bool
    spans: list[Span] = field(default_factory=list)
    dead_letters: list[tuple[Span, str]] = field(default_factory=list)
    archived: list[tuple[AcquiredRange, str]] = field(default_factory=list)
    counters: Counters = NO_COUNTERS
    answered: bool = False


@dataclass(slots=True)
class RolledBack:
    """What a roll-back changed and no write has carried yet (PL-307, PL-621)."""

    changed: list[Span] = field(default_factory=list)
    archiving: list[Span] = field(default_factory=list)
    archived: list[AcquiredRange] = field(default_factory=list)  # at the delivery limit


def commit(window: Window, spans: Sequence[Span]) -> None:
    """The write is durable: pending records of the ascending, disjoint spans take their new state, and their owners and
    locks are removed (PL-412)."""
    for batch, parts in window.grouped(spans):
        if is_dense(parts):
            window.settle(batch, parts, COMMIT)
            continue
        for first, last in parts:
            if window.recode(batch, first, last, COMMIT):
                batch.hold(first, last, NOBODY, 0)


def roll_back(window: Window, operation: Operation, now_ms: int, into: RolledBack) -> None:
    """The write failed: records become Acquired again with their running lock (T19, PL-414). One whose lock has expired
    meanwhile is released, and one that the start offset has passed is archived (PL-307)."""
    for batch, first, last in window.pieces(operation.spans):
        if batch.pending:
            _roll_back_batch(window, operation, now_ms, batch, (first, last), into)


def _roll_back_batch(  # noqa: PLR0917 - one batch of the loop above
    window: Window, operation: Operation, now_ms: int, batch: InFlightBatch, span: Span, into: RolledBack
) -> None:
    for low, high, code, count, _, deadline in list(batch.lock_runs(*span)):
        if not code & PENDING:
            continue
        for first, last in _split_at(low, high, window.start_offset):
            if last < window.start_offset:
                state, table = STATE_ARCHIVED, ROLL_BACK_BELOW_START
            elif deadline <= now_ms:
                state = released_state(count, operation.limit, operation.dlq_enabled)
                table = ROLL_BACK_EXPIRED[state]
                if state == STATE_ARCHIVED:
                    into.archived.append(AcquiredRange(first, last, count))
            else:
                window.recode(batch, first, last, ROLL_BACK)
                continue
            window.recode(batch, first, last, table)
            batch.hold(first, last, NOBODY, 0)
            into.changed.append((first, last))
            if state == STATE_ARCHIVING:
                into.archiving.append((first, last))


def _split_at(first: int, last: int, start_offset: int) -> list[Span]:
    """The span in two where the start offset cuts it (PL-304)."""
    if first < start_offset <= last:
        return [(first, start_offset - 1), (start_offset, last)]
    return [(first, last)]


def revert(window: Window, operation: Operation) -> None:
    """Undo an operation that was refused half-way. Only at the instant it began: no lock can have ended (PL-410)."""
    for batch, first, last in window.pieces(operation.spans):
        window.recode(batch, first, last, REVERT)


def force(window: Window, batch: InFlightBatch, span: Span, state: int, count: int) -> None:
    """Give pending records the state and delivery count that the coordinator has stored (PL-707)."""
    window.recode(batch, *span, TAKE_STORED[state])
    batch.set_counts(*span, count)
    batch.hold(*span, NOBODY, 0)


def state_of(code: int) -> int:
    """The state of a code, its pending mark left out."""
    return code & STATE_MASK


def refusal_of(code: int, member: str, caller: str) -> str | None:
    """Why `caller` may not act on a record with this code and owner; None when it may (PL-406, PL-407)."""
    if code & PENDING:
        return "an earlier acknowledgement of it is still being written"
    if code == STATE_AVAILABLE:
        return "nobody holds it any more: its lock expired or it was released"
    if code != 1:
        return "it is already acknowledged or archived"
    return None if member == caller else "another member holds it"
