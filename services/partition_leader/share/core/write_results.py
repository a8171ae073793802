"""Handles the result of a write or of a read-back: commit, roll back, answer, or drop (PL-412, PL-414, PL-707).

Owns what each outcome means for the operations that waited for it. `SharePartition` calls these functions.
"""

from __future__ import annotations

from kip932.errors import FencedError, FencedStateEpochError
from partition_leader.share.core import events
from partition_leader.share.core.archived import DELIVERY_LIMIT, told
from partition_leader.share.core.effects import DLQ_DELIVERY_COUNT_EXCEEDED, ReadBackWanted
from partition_leader.share.core.failures import Consequence, meaning
from partition_leader.share.core.operations import Operation, begin_delays, commit
from partition_leader.share.core.partition_state import PartitionState
from partition_leader.share.core.read_back import Stored, settle
from partition_leader.share.core.status import DelayCause, DropReason, Status
from partition_leader.share.core.write_back import Write


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
        state.effects += told(marks)
    _start_dead_letters(state, write)


def _note_given_up(state: PartitionState, operation: Operation) -> None:
    for (first, last, _), _ in operation.archived:
        state.given_up.note(first, last, operation.member_id)
    for (first, last), _ in operation.dead_letters:
        state.given_up.note(first, last, operation.member_id)


def _begin_delays(state: PartitionState, operation: Operation) -> None:
    state.delayed_by[DelayCause.RELEASED] += begin_delays(state.window, operation, state.now_ms)


def _start_dead_letters(state: PartitionState, write: Write) -> None:
    """Start phase 2 for the records that this write has stored as Archiving (PL-305, PL-412)."""
    causes = [cause for operation in write.operations for cause in operation.dead_letters]
    causes += [(span, DLQ_DELIVERY_COUNT_EXCEEDED) for span in write.carried.archiving]
    if causes:
        state.effects += state.dead_letters.send(state.window, causes)
        state.wake = True  # what waits for its letter leaves room (PL-915)


def persist_failed(state: PartitionState, event: events.PersistFailed) -> None:
    """Fail every operation of a failed write (PL-705); an unknown outcome is read back first (PL-707)."""
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
    state.generation += 1  # adopted before the read is sent: from then on the unanswered write is fenced
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
    stored = Stored(event.start_offset, event.batches)
    for operation in operations:
        settle(state.window, operation, stored, state.now_ms)
        _begin_delays(state, operation)
    state.effects += told(stored.archived(mark for operation in operations for mark in operation.archived))
    # Before the roll-back: records that it makes Archiving are not stored yet, and their letters follow the write
    # (PL-305).
    causes = [cause for operation in operations for cause in operation.dead_letters]
    state.effects += state.dead_letters.send(state.window, causes)
    state.roll_back(operations)
    state.wake = True


def read_back_failed(state: PartitionState, event: events.ReadBackFailed) -> None:
    """Retire or stop, because it is unknown what is stored; a successor reads it (PL-707)."""
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
