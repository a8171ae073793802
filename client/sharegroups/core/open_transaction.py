"""What a sender notes of an open transaction: which leaders confirmed, what failed, what was given up (CL-101).

Pure. Groups of batches are opaque but for their batches' identities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple

from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from sharegroups.core.produce_lane import Group, ProducerIdentity, RecordT, WatcherT


class Transaction(NamedTuple):
    """How a producer's transactions are named and bounded (CM-44)."""

    transactional_id: str
    timeout_ms: int


class OpenTransaction(Generic[RecordT, WatcherT]):
    """One for the life of a producer; `begin` makes it the next transaction's."""

    def __init__(self) -> None:
        #: Whether a batch was sent, whatever became of it.
        self.sent_any = False
        #: The partitions whose leaders confirmed batches.
        self.confirmed: set[TopicIdPartition] = set()
        #: The first error of a record that could not be delivered.
        self.error: KafkaError | None = None
        #: Groups in flight of transactions that were aborted.
        self._abandoned: set[Group[RecordT, WatcherT]] = set()

    def begin(self) -> None:
        """What is sent from now on belongs to a new transaction."""
        self.sent_any = False
        self.confirmed.clear()
        self.error = None

    def abandon(self, in_flight: Iterable[Group[RecordT, WatcherT]]) -> None:
        """The transaction is being aborted: none of these groups is sent again. Else a batch that comes back would be
        numbered anew, and belong to the next transaction."""
        self._abandoned.update(in_flight)

    def was_abandoned(self, group: Group[RecordT, WatcherT]) -> bool:
        """Whether the group, which is answered or lost now, belonged to a transaction that was aborted."""
        abandoned = group in self._abandoned
        self._abandoned.discard(group)
        return abandoned

    def failed(self, group: Group[RecordT, WatcherT], identity: ProducerIdentity | None, error: KafkaError) -> None:
        """A group could not be delivered. One of an aborted transaction may fail later, and concerns no other one."""
        if any(batch.identity is None or batch.identity == identity for batch in group.batches):
            self.error = self.error or error
