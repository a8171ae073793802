"""The idempotent producers of one partition: the last five batches of each, and the check of its next batch (CM-43).

For a transactional producer the table also keeps the last epoch that a marker ended. Every transaction has its own
epoch, so a batch that arrives after its transaction has ended is refused (CM-44).

Only `accept` adds batches; it returns a token with which `undo` removes the batch if the store refuses the append.
Producers are bounded in number and age; the producer whose last append is oldest is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from kip932.errors import DuplicateSequenceNumberError, InvalidProducerEpochError, OutOfOrderSequenceNumberError
from partition_leader.topic_log.core.batch import LogBatch, NewBatch

KEPT_BATCHES: Final = 5
PRODUCERS_MAX: Final = 10_000
_SEQUENCES: Final = 1 << 31  # sequences are int32 ≥ 0 and wrap to 0


class SequencedBatch(NamedTuple):
    """One remembered batch of a producer."""

    base_sequence: int
    record_count: int
    base_offset: int
    append_time_ms: int


NO_EPOCH: Final = -1


class ProducerState(NamedTuple):
    """One producer's state; its batches are oldest first. `ended_epoch`: the last epoch that a marker ended, −1 for
    none."""

    epoch: int
    batches: tuple[SequencedBatch, ...]
    last_append_ms: int
    ended_epoch: int = NO_EPOCH


class Undo(NamedTuple):
    """Restores one producer's earlier state; `state`: None when the producer was unknown."""

    producer_id: int
    state: ProducerState | None


class ProducerTable:
    """All producers of one partition, in order of their last append."""

    __slots__ = ("_limit", "_producers", "forgot")

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self._limit = limit
        self._producers: OrderedDict[int, ProducerState] = OrderedDict()
        self.forgot = False
        """Whether producers may have been forgotten, or lost with a tail: an unknown one may then start with any
        sequence number."""

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, batch: NewBatch) -> SequencedBatch | None:
        """Check the next batch. Returns None if it may be appended; otherwise the batch that it repeats, whose offset
        is then returned to the producer.

        Raises OutOfOrderSequenceNumberError for a gap, except before a batch that says that its producer has given up
        what is missing; InvalidProducerEpochError for an epoch older than the known one,
        or one whose transaction has ended; DuplicateSequenceNumberError if a batch without a sequence number would be
        taken for a duplicate.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:
            if batch.base_sequence != 0 and not (self.forgot or batch.after_given_up):
                raise OutOfOrderSequenceNumberError(
                    f"producer {batch.producer_id} is new here and began with sequence {batch.base_sequence}; "
                    "expected 0: send the earlier batches first, or begin again with another InitProducerId"
                )
            return None
        if batch.producer_epoch < known.epoch:
            raise InvalidProducerEpochError(
                f"producer {batch.producer_id} sent epoch {batch.producer_epoch}; epoch {known.epoch} is in force: "
                "another instance took over, begin again with InitProducerId"
            )
        if batch.producer_epoch <= known.ended_epoch:
            raise InvalidProducerEpochError(
                f"producer {batch.producer_id} sent a batch of epoch {batch.producer_epoch}, whose transaction has "
                "ended; nothing was written: ask for the current epoch with EndTxn or InitProducerId"
            )
        same_epoch = known.batches if batch.producer_epoch == known.epoch else ()
        for one in same_epoch:
            if one.base_sequence == batch.base_sequence and one.record_count == batch.record_count:
                if not batch.sequence_given:
                    raise DuplicateSequenceNumberError(
                        f"producer {batch.producer_id} sent a batch without base_sequence, and its sequence 0 is "
                        "taken; nothing was written. Set producer_id, producer_epoch and base_sequence on every batch, "
                        "the sequence counting the records sent to this partition, or none of the three"
                    )
                return one
        newest = same_epoch[-1] if same_epoch else None
        expected = 0 if newest is None else (newest.base_sequence + newest.record_count) % _SEQUENCES
        # A batch that was given up may still arrive, late: its sequence is then behind.
        ahead = (batch.base_sequence - expected) % _SEQUENCES
        if ahead and not (batch.after_given_up and ahead < _SEQUENCES // 2):
            raise OutOfOrderSequenceNumberError(
                f"producer {batch.producer_id} sent sequence {batch.base_sequence} of epoch {batch.producer_epoch}; "
                f"expected {expected}"
            )
        return None

    def ended(self, producer_id: int, epoch: int) -> bool:
        """Return whether a marker has ended the producer's transaction with this epoch or a later one."""
        known = self._producers.get(producer_id)
        return known is not None and known.ended_epoch >= epoch

    def accept(self, batch: LogBatch) -> Undo:
        """Remember an appended batch or marker; replay uses it too, without `check`."""
        known = self._producers.get(batch.producer_id)
        kept = known.batches if known is not None and known.epoch == batch.producer_epoch else ()
        if batch.is_control:
            epoch, ended = batch.producer_epoch, batch.producer_epoch
            if known is not None and known.epoch > epoch:
                epoch, kept, ended = known.epoch, known.batches, max(known.ended_epoch, ended)
            state = ProducerState(epoch, kept, batch.append_time_ms, ended)
        else:
            new = SequencedBatch(batch.base_sequence, batch.record_count, batch.base_offset, batch.append_time_ms)
            ended = NO_EPOCH if known is None else known.ended_epoch
            kept = (*kept[1 - KEPT_BATCHES :], new)
            state = ProducerState(batch.producer_epoch, kept, batch.append_time_ms, ended)
        self._producers[batch.producer_id] = state
        self._producers.move_to_end(batch.producer_id)
        return Undo(batch.producer_id, known)

    def undo(self, token: Undo) -> None:
        """Undo one `accept`. Undo the latest one first."""
        if token.state is None:
            self._producers.pop(token.producer_id, None)
        else:
            self._producers[token.producer_id] = token.state

    def restore(self, producer_id: int, state: ProducerState, below: int) -> None:
        """Add a producer from a snapshot, without batches that reach past `below`, the surviving log end (CM-47)."""
        kept = tuple(one for one in state.batches if one.base_offset + one.record_count <= below)
        if len(kept) < len(state.batches):
            self.forgot = True
        if kept or not state.batches or state.ended_epoch != NO_EPOCH:
            self._producers[producer_id] = state._replace(batches=kept[-KEPT_BATCHES:])

    def expire(self, appended_before_ms: int) -> int:
        """Forget producers whose last append is older than this, and the oldest ones above the limit. Returns how many.
        Do not call this between `accept` and the outcome of the append: `undo` must find its producers."""
        gone = 0
        while self._producers:
            producer_id, state = next(iter(self._producers.items()))
            if len(self._producers) <= self._limit and state.last_append_ms >= appended_before_ms:
                break
            del self._producers[producer_id]
            gone += 1
        self.forgot = self.forgot or gone > 0
        return gone

    def items(self) -> Iterable[tuple[int, ProducerState]]:
        """Return all producers, the one with the oldest last append first."""
        return self._producers.items()
