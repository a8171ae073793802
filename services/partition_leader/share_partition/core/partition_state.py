"""The state that the handlers of one share-partition share: status, settings, window, queued writes.

Owns the transitions between statuses (PL-601, PL-604, PL-631), and the effects of the event that is being handled. It
makes no decisions about records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kip932.errors import KafkaError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from partition_leader.share_partition.core.backoff import AT_ONCE, Retries
from partition_leader.share_partition.core.dead_letters import DeadLetters, stored_letters
from partition_leader.share_partition.core.effects import (
    CAUSE_CATCH_UP,
    CAUSE_SESSION_RELEASE,
    AcquiredRange,
    Activated,
    Counters,
    Dropped,
    Effect,
    Fenced,
    Reply,
)
from partition_leader.share_partition.core.finished import NONE_FINISHED
from partition_leader.share_partition.core.given_up import GivenUp
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.limits import Limits
from partition_leader.share_partition.core.operations import Operation, RolledBack, roll_back
from partition_leader.share_partition.core.reasons import Reasons
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.status import DelayCause, DropReason, Status
from partition_leader.share_partition.core.write_back import WriteBack
from shard_runtime.config.group_config import GroupConfig


class Retirement(NamedTuple):
    """Why a share-partition retires, and the latest time at which it is dropped (ms)."""

    error: KafkaError
    until_ms: int
    reason: DropReason


class PartitionState:
    """The live state of one share-partition object.

    `effects`, `wake` and `now_ms` belong to the event that is being handled. `wake`: add a `Wake` at its end.
    """

    __slots__ = (
        "chance",
        "dead_letters",
        "delayed_by",
        "effects",
        "finished",
        "generation",
        "given_up",
        "locks_expired",
        "name",
        "now_ms",
        "operation_timeout_ms",
        "reasons",
        "retirement",
        "settings",
        "state_epoch",
        "status",
        "wake",
        "window",
        "write_back",
    )

    def __init__(
        self, name: str, generation: int, operation_timeout_ms: int, chance: Callable[[], float], limits: Limits
    ) -> None:
        self.name = name
        self.generation = generation
        self.operation_timeout_ms = operation_timeout_ms
        self.status = Status.INITIALIZING
        self.state_epoch = 0
        self.window = Window(limits=limits)
        self.write_back = WriteBack(limits)
        self.dead_letters = DeadLetters(limits.merged_batches)
        self.given_up = GivenUp()
        self.reasons = Reasons()
        self.settings = GroupConfig()
        self.locks_expired = 0
        self.finished = NONE_FINISHED  # records that durable writes of this object have finished (PL-952)
        self.chance = chance
        self.delayed_by = dict.fromkeys(DelayCause, 0)  # records that were ever delayed (PL-938)
        self.retirement: Retirement | None = None
        self.effects: list[Effect] = []
        self.wake = False
        self.now_ms = 0

    def persist(self) -> None:
        """Emit the effect for the next write."""
        self.effects.append(self.write_back.build(self.window, self.generation, self.state_epoch))
        assert self.write_back.outstanding is not None
        self.write_back.outstanding.began_ms = self.now_ms

    def reply(self, op_id: int, error: KafkaError | None, persisted: bool = False) -> None:
        """Answer an operation that failed. `persisted`: whether a write included it (PL-411)."""
        self.effects.append(Reply(op_id, error, persisted))

    def succeed(self, operation: Operation, persisted: bool = False) -> None:
        """Answer an operation that took effect. `persisted`: whether a write has stored its outcome (PL-411)."""
        self.effects.append(Reply(operation.op_id, None, persisted, operation.acknowledged))

    def activate(self) -> None:
        """Become ACTIVE, and continue the dead-letter flow that a former leader started (PL-611)."""
        self.status = Status.ACTIVE
        self.wake = True
        self.send_letters(stored_letters(self.window, self.settings))
        self.effects.append(Activated())

    def send_letters(self, causes: Iterable[tuple[Span, str]]) -> None:
        """Send the dead letters of these records, which are stored as Archiving, each with its reason (PL-904)."""
        self.effects += self.dead_letters.send(self.window, causes, self.reasons.failures)

    def fail(self, error: KafkaError) -> None:
        """Become FAILED: initialisation failed for good (PL-604)."""
        self.status = Status.FAILED
        self.wake = True
        self.effects += [
            Fenced(error, retiring=False, reason=DropReason.INITIALIZE_FAILED),
            Dropped(error, self.generation),
        ]

    def gone(self) -> KafkaError:
        """Return the error for a caller that still reaches a dropped share-partition (PL-402, PL-631)."""
        if self.status is Status.RETIRING:
            return UnknownTopicOrPartitionError(
                f"{self.name} is being dropped here; fetch from it again to open it again"
            )
        return NotLeaderOrFollowerError(
            f"{self.name} is no longer served by this object; look up the partition's leader"
        )

    def roll_back(self, operations: list[Operation]) -> None:
        """Undo operations that no write has stored. Records that cannot go back to their holder are written later
        (PL-307, PL-414)."""
        result = RolledBack()
        for operation in operations:
            again = AT_ONCE if operation.cause == CAUSE_SESSION_RELEASE else Retries(self.settings.backoff, self.chance)
            roll_back(self.window, operation, self.now_ms, result, again)
        self.delayed_by[DelayCause.LOCK_EXPIRED] += result.delayed
        if self.status is Status.ACTIVE:
            limited = [*((first, last) for first, last, _ in result.archived), *result.archiving]
            counters = Counters(n_limit=sum(last - first + 1 for first, last in limited))
            self.write_back.note(result.changed, CAUSE_CATCH_UP, counters, urgent=bool(result.archiving))
            self.write_back.dirty.archiving += result.archiving
            self.write_back.dirty.archived += result.archived
            self.give_up(result.archived, result.archiving)
        self.wake |= bool(result.changed)

    def give_up(self, archived: Iterable[AcquiredRange], archiving: Iterable[Span]) -> None:
        """Remember records that were archived without an acknowledgement, because their lock ended at the delivery
        limit (PL-418)."""
        for first, last, _ in archived:
            self.given_up.note(first, last)
        for first, last in archiving:
            self.given_up.note(first, last)

    def begin_retirement(self, error: KafkaError, reason: DropReason) -> None:
        """Start refusing acquires and acknowledgements, and drop once queued operations are finished (PL-631)."""
        if self.status is not Status.ACTIVE:
            return
        self.status = Status.RETIRING
        self.retirement = Retirement(error, self.now_ms + self.operation_timeout_ms, reason)
        self.window.locks.clear()
        unresolved, self.write_back.unresolved = self.write_back.unresolved, []
        self.roll_back(unresolved)
        self.wake = True
        self.effects.append(Fenced(error, retiring=True, reason=reason))

    def stop(self, error: KafkaError, reason: DropReason) -> None:
        """Write nothing more: answer waiting operations with an error, and drop (PL-631)."""
        answer = error if isinstance(error, NotLeaderOrFollowerError) else self.not_leader(error)
        for operation in self.write_back.abandon():
            self.reply(operation.op_id, answer)
        if self.status is not Status.RETIRING:
            self.effects.append(Fenced(error, retiring=False, reason=reason))
        self.retirement = Retirement(error, self.now_ms, reason)
        self.finish()

    def not_leader(self, error: KafkaError) -> KafkaError:
        """Return the error for operations that are ended by a drop (PL-631)."""
        return NotLeaderOrFollowerError(f"{self.name} was dropped: {error.message}")

    def finish(self) -> None:
        """Become FENCED and drop: all writes and dead letters are finished or given up."""
        assert self.retirement is not None
        self.status = Status.FENCED
        self.wake = True
        self.window.locks.clear()
        self.dead_letters.forget()
        self.effects.append(Dropped(self.retirement.error, self.generation))
