"""Handles the results of writes and read-backs: commit, roll back, answer, or drop (PL-412, PL-414, PL-707).

Decides what each outcome means for the operations that wait for it. `SharePartition` calls these functions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kip932.errors import FencedError, FencedStateEpochError
from kip932.ids import STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import events
from partition_leader.share_partition.core.archived import DELIVERY_LIMIT, Mark, effects_of
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.effects import (
    DLQ_CLIENT_REJECT,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    AcquiredRange,
    ReadBackWanted,
)
from partition_leader.share_partition.core.failures import Consequence, meaning
from partition_leader.share_partition.core.finished import Letter
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.operations import Operation, begin_delays, commit, force, state_of
from partition_leader.share_partition.core.partition_state import PartitionState
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.status import DelayCause, DropReason, Status
from partition_leader.share_partition.core.transitions import PENDING
from partition_leader.share_partition.core.write_back import Write


def persisted(state: PartitionState, event: events.Persisted) -> None:
    """Commit everything that a durable write carried (PL-412)."""
    write = state.write_back.take(event.write_id)
    if write is None:
        return
    state.write_back.last_written = write.progress
    state.write_back.confirm_start(write.progress.start_offset)
    if write.is_init:
        state.activate()
        return
    commit(state.window, write.spans)
    state.reasons.add(write.failures, max(state.window.start_offset, write.progress.start_offset))
    parts = [write.carried.counters, *(operation.counters for operation in write.operations)]
    letters = _letters(write)
    state.finished = state.finished.counted(parts, letters, state.now_ms)
    for operation in write.operations:
        if operation.delays:
            _begin_delays(state, operation)
        state.succeed(operation, persisted=True)
        if operation.archived or operation.dead_letters:
            _note_given_up(state, operation)
    state.wake |= bool(write.operations)
    marks = [mark for operation in write.operations for mark in operation.archived]
    marks += [(found, DELIVERY_LIMIT) for found in write.carried.archived]
    if marks:
        state.effects += effects_of(marks)
    if letters:
        _start_dead_letters(state, letters)


def _note_given_up(state: PartitionState, operation: Operation) -> None:
    for (first, last, _), _ in operation.archived:
        state.given_up.note(first, last, operation.member_id)
    for (first, last), _ in operation.dead_letters:
        state.given_up.note(first, last, operation.member_id)


def _begin_delays(state: PartitionState, operation: Operation) -> None:
    state.delayed_by[DelayCause.RELEASED] += begin_delays(state.window, operation, state.now_ms)


def _letters(write: Write) -> list[Letter]:
    """Return the records that this write has stored as Archiving, with the causes of their dead letters."""
    letters = [letter for operation in write.operations for letter in operation.dead_letters]
    return letters + [(span, DLQ_DELIVERY_COUNT_EXCEEDED) for span in write.carried.archiving]


def _start_dead_letters(state: PartitionState, letters: list[Letter]) -> None:
    """Start phase 2 for records that are stored as Archiving (PL-305, PL-412)."""
    state.send_letters(letters)
    state.wake = True  # records that wait for their dead letters free up room (PL-915)


def persist_failed(state: PartitionState, event: events.PersistFailed) -> None:
    """Fail every operation of a failed write (PL-705); if the outcome is unknown, read it back first (PL-707)."""
    write = state.write_back.take(event.write_id)
    if write is None:
        return
    error, consequence = meaning(event.error)
    if write.is_init:
        state.fail(error)
        return
    if not write.operations and not isinstance(event.error, FencedError):
        consequence = Consequence.KEEP  # PL-630: expiry and T15 drop only when fenced
    if consequence is Consequence.STOP:
        state.write_back.outstanding = write
        state.stop(error, DropReason.LEADERSHIP_LOST)
        return
    for operation in write.operations:
        operation.answered = True
        state.reply(operation.op_id, error, persisted=True)
    state.write_back.put_back(write)
    if consequence is Consequence.RETIRE:
        state.begin_retirement(error, DropReason.STATE_REPLACED)
        state.roll_back(write.operations)
        return
    if event.outcome_unknown and write.operations and state.status is Status.ACTIVE:
        _want_read_back(state, write.operations)
    else:
        state.roll_back(write.operations)


def _want_read_back(state: PartitionState, operations: list[Operation]) -> None:
    state.generation += 1  # set before the read is sent; from then on the unanswered write is fenced
    state.write_back.unresolved = operations
    state.effects.append(ReadBackWanted(state.generation))


def _take_unresolved(state: PartitionState, generation: int) -> list[Operation] | None:
    write_back = state.write_back
    if generation != state.generation or not write_back.unresolved:
        return None
    operations, write_back.unresolved = write_back.unresolved, []
    return operations


def read_back(state: PartitionState, event: events.ReadBack) -> None:
    """Decide from the stored state which of the unresolved records took effect (PL-707)."""
    operations = _take_unresolved(state, event.generation)
    if operations is None:
        return
    if event.state_epoch != state.state_epoch:
        text = f"stored state epoch is {event.state_epoch}, this leader works with {state.state_epoch}"
        error = meaning(FencedStateEpochError(f"{state.name}: {text}")).error
        state.begin_retirement(error, DropReason.STATE_REPLACED)
        state.roll_back(operations)
        return
    state.write_back.confirm_start(event.start_offset)
    state.reasons.add(event.failures, max(state.window.start_offset, event.start_offset))
    stored = StoredRecords(event.start_offset, event.batches)
    for operation in operations:
        letters = tuple(operation.dead_letters)
        settle_operation(state.window, operation, stored, state.now_ms)
        _begin_delays(state, operation)
        if not _is_pending(state.window, operation):  # it is stored: a write is stored as a whole, or not at all
            state.finished = state.finished.counted((operation.counters,), letters, state.now_ms)
    state.effects += effects_of(stored.archived(mark for operation in operations for mark in operation.archived))
    # Before the roll-back: records that become Archiving in it are not stored yet, and their dead letters must follow
    # their write (PL-305).
    causes = [cause for operation in operations for cause in operation.dead_letters]
    state.send_letters(causes)
    state.roll_back(operations)
    state.wake = True


def _is_pending(window: Window, operation: Operation) -> bool:
    """Return whether a record of the operation still waits for its write."""
    pieces = window.pieces(operation.spans)
    return any(
        code & PENDING for batch, first, last in pieces if batch.pending for _, _, code, _ in batch.runs(first, last)
    )


def read_back_failed(state: PartitionState, event: events.ReadBackFailed) -> None:
    """Retire or stop, because it is unknown what is stored; a successor will read it (PL-707)."""
    operations = _take_unresolved(state, event.generation)
    if operations is None:
        return
    error, consequence = meaning(event.error)
    if consequence is Consequence.STOP:
        state.stop(error, DropReason.LEADERSHIP_LOST)
    else:
        replaced = consequence is Consequence.RETIRE
        state.begin_retirement(error, DropReason.STATE_REPLACED if replaced else DropReason.OUTCOME_UNKNOWN)
        state.roll_back(operations)


class StoredRecords:
    """The stored state: its start offset, and the state and delivery count of any offset from there on."""

    __slots__ = ("_batches", "_firsts", "start_offset")

    def __init__(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        self.start_offset = start_offset
        self._batches = sorted(batches)
        self._firsts = [batch.first_offset for batch in self._batches]

    def pieces(self, first: int, last: int) -> list[tuple[Span, tuple[int, int], int]]:
        """Return what is stored for `first`…`last`: each span with its (count, state) and the end of its delay."""
        result: list[tuple[Span, tuple[int, int], int]] = []
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self._batches[at].last_offset < first:
            at += 1
        while first <= last:
            batch = self._batches[at] if at < len(self._batches) else None
            if batch is None or batch.first_offset > last:
                break
            end = min(last, batch.last_offset)
            rank = batch.delivery_count, batch.delivery_state
            result.append(((max(first, batch.first_offset), end), rank, batch.not_before_ms))
            first = end + 1
            at += 1
        return result

    def archived(self, marks: Iterable[Mark]) -> list[Mark]:
        """Return the parts of `marks` that are stored as archived or are below the stored start offset; the rest were
        not archived.

        The window's own start offset does not show which were archived: the log may have lost the records below it
        meanwhile.
        """
        found: list[Mark] = []
        for (first, last, count), cause in marks:
            passed = min(last, self.start_offset - 1)
            spans = [(first, passed)] if first <= passed else []
            spans += [
                span for span, (_, state), _ in self.pieces(max(first, passed + 1), last) if state == STATE_ARCHIVED
            ]
            found += [(AcquiredRange(*span, count), cause) for span in spans]
        return found


def settle_operation(window: Window, operation: Operation, stored: StoredRecords, now_ms: int = 0) -> None:
    """Resolve a write with unknown outcome, record by record (PL-707): commit records that are stored as written or are
    below the stored start offset, and adopt a higher stored rank. Changes that stay pending were not applied, and never
    will be, because their generation is fenced: the caller rolls them back."""
    for first, last in operation.spans:
        for batch in window.overlapping(first, last):
            low, high = max(first, batch.first), min(last, batch.last)
            for start, end, code, count in list(batch.runs(low, high)):
                if code & PENDING:
                    _settle_run(window, operation, stored, batch, ((start, end), code, count), now_ms)


def _settle_run(  # noqa: PLR0917 - one run of the loop above
    window: Window,
    operation: Operation,
    stored: StoredRecords,
    batch: InFlightBatch,
    run: tuple[Span, int, int],
    now_ms: int,
) -> None:
    (first, last), code, count = run
    if first < stored.start_offset:
        done = min(last, stored.start_offset - 1)
        commit(window, [(first, done)])
        first = done + 1
    written = (count, state_of(code))
    for span, found, until_ms in stored.pieces(first, last) if first <= last else ():
        if found == written:
            commit(window, [span])
        elif found > written:
            _take_stored(window, operation, batch, span, found, until_ms if until_ms > now_ms else 0)


def _take_stored(  # noqa: PLR0917 - the stored values of one run
    window: Window, operation: Operation, batch: InFlightBatch, span: Span, found: tuple[int, int], until_ms: int
) -> None:
    count, state = found
    for first, last in ((span[0], min(span[1], window.start_offset - 1)), (max(span[0], window.start_offset), span[1])):
        if first > last:
            continue
        is_passed = last < window.start_offset and state == STATE_AVAILABLE  # it will not be delivered again
        if is_passed:
            force(window, batch, (first, last), STATE_ARCHIVED, count)
        else:
            force(window, batch, (first, last), state, count, until_ms)
        known = any(low <= first <= high for (low, high), _ in operation.dead_letters)
        if state == STATE_ARCHIVING and not known:  # PL-910
            cause = DLQ_DELIVERY_COUNT_EXCEEDED if count >= operation.limit else DLQ_CLIENT_REJECT
            operation.dead_letters.append(((first, last), cause))
