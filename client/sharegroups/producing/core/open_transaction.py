"""What a sender remembers about an open transaction: confirmed partitions, the first failure, abandoned groups
(CL-101).

Pure. Groups of batches are opaque, except for the identities of their batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple

from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from sharegroups.producing.core.produce_lane import Group, ProducerIdentity, RecordT, WatcherT


class Transaction(NamedTuple):
    """The name and time-out of a producer's transactions (CM-44)."""

    transactional_id: str
    timeout_ms: int


class OpenTransaction(Generic[RecordT, WatcherT]):
    """The state of the open transaction. A producer has one such object for its whole lifetime; `begin` resets it."""

    def __init__(self) -> None:
        #: True once a batch was sent, regardless of the outcome.
        self.sent_any = False
        #: The partitions whose leaders have confirmed batches.
        self.confirmed: set[TopicIdPartition] = set()
        #: The first error of a record that could not be delivered.
        self.error: KafkaError | None = None
        #: Groups in flight that belong to aborted transactions.
        self._abandoned: set[Group[RecordT, WatcherT]] = set()

    def begin(self) -> None:
        """Begin a new transaction, to which everything sent from now on belongs."""
        self.sent_any = False
        self.confirmed.clear()
        self.error = None

    def abandon(self, in_flight: Iterable[Group[RecordT, WatcherT]]) -> None:
        """Mark these groups as never to be sent again, since the transaction is being aborted. Otherwise a retried
        batch would get new numbers and belong to the next transaction."""
        self._abandoned.update(in_flight)

    def was_abandoned(self, group: Group[RecordT, WatcherT]) -> bool:
        """Return whether the group, whose request just got a response or was lost, belonged to an aborted
        transaction."""
        abandoned = group in self._abandoned
        self._abandoned.discard(group)
        return abandoned

    def failed(self, group: Group[RecordT, WatcherT], identity: ProducerIdentity | None, error: KafkaError) -> None:
        """Note that a group could not be delivered. A late failure from an aborted transaction is ignored."""
        if any(batch.identity is None or batch.identity == identity for batch in group.batches):
            self.error = self.error or error
