"""The log that the model's fetches read, with transactions, holes and a start offset that moves.

The model derives aborted transactions and the last stable offset from the outcome of each transaction; the product's
index of transactions (`LogTransactions`) must give the same results (PL-006, PL-008, PL-802).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from partition_leader.share_partition.core.events import AbortedTransaction
from partition_leader.topic_log.core.transactions import LogTransactions


class Batch(NamedTuple):
    """A log batch, without its bytes."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False
    producer_epoch: int = 0
    transactional_id: str = ""
    append_time_ms: int = 0

    @property
    def record_count(self) -> int:
        """Return the number of its offsets."""
        return self.last_offset - self.base_offset + 1


class Found(NamedTuple):
    """The result of a read. `hidden`: the offsets of aborted transactions."""

    batches: list[Batch]
    aborted: tuple[AbortedTransaction, ...]
    hidden: frozenset[int]


class TopicLog:
    """A topic log. `fates`: base offset of each transactional batch → open, commit or abort."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.end = 0
        self.fates: dict[int, str] = {}
        self.index = LogTransactions.none()

    def append(self, size: int, hole: int = 0, producer: int = -1) -> None:
        """Append a batch after a hole; it belongs to a transaction if a producer is given."""
        base = self.end + hole
        self._add(Batch(base, base + size - 1, producer, producer >= 0))
        if producer >= 0:
            self.fates[base] = "open"

    def raise_end(self, by: int) -> None:
        """Lose a tail: skip offsets that are never written (CM-47)."""
        self.end += by

    def has_records_from(self, offset: int) -> bool:
        """Return True if any batch ends at or after this offset."""
        return any(one.last_offset >= offset for one in self.batches)

    def end_transaction(self, producer: int, abort: bool) -> None:
        """Append the marker of a producer's transaction, if it has one."""
        mine = [
            one for one in self.batches if one.producer_id == producer and self.fates.get(one.base_offset) == "open"
        ]
        if not mine:
            return
        self._add(Batch(self.end, self.end, producer, True, True, abort))
        self.fates |= {one.base_offset: "abort" if abort else "commit" for one in mine}

    def _add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.end = batch.last_offset + 1
        self.index.note(cast(Any, batch))

    @property
    def last_stable(self) -> int:
        """LAST_STABLE."""
        opened = [base for base, fate in self.fates.items() if fate == "open"]
        stable = min([self.end, *(max(base, self.start) for base in opened)])
        said = self.index.last_stable(self.start, self.end)
        assert said == stable, f"last stable offset: product {said}, model {stable}"
        return stable

    def move_start(self, start: int) -> None:
        """Delete batches that end below `start`, except those of open transactions, so that the last stable offset
        never depends on deleted batches."""
        self.start = max(self.start, min(start, self.last_stable))
        self.batches = [one for one in self.batches if one.last_offset >= self.start]
        self.index.trim(self.start)

    def compact(self, at: int) -> None:
        """Remove one batch, but never the last, nor one of an open transaction."""
        if len(self.batches) > 1 and self.fates.get(self.batches[at % (len(self.batches) - 1)].base_offset) != "open":
            del self.batches[at % (len(self.batches) - 1)]

    def read(self, offset: int, batches_max: int, committed: bool) -> Found:
        """PL-006."""
        bound = self.last_stable if committed else self.end
        found = [one for one in self.batches if one.last_offset >= offset and one.last_offset < bound][:batches_max]
        if not found or not committed:
            return Found(found, (), frozenset())
        aborted = self.index.aborted_in(found[0].base_offset, found[-1].last_offset)
        hidden = frozenset(
            at
            for one in found
            if self.fates.get(one.base_offset) == "abort"
            for at in range(one.base_offset, one.last_offset + 1)
        )
        return Found(found, tuple(AbortedTransaction(*one[:3]) for one in aborted), hidden)
