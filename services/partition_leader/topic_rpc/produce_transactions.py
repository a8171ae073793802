"""Adds a partition to a transaction's record before the transaction's first batch is appended there (CM-153).

Used only for requests with a transactional id. Nothing is awaited for a partition that already has the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from kip932.errors import InvalidRequestError, KafkaError
from kip932.ids import TopicIdPartition
from partition_leader.topic_rpc.log_directory import LogDirectory
from partition_leader.topic_rpc.produce_batches import ProducedPart
from transaction_coordinator.core.transaction import Identity


class Transactions(Protocol):
    """The records of transactional ids, for a leader."""

    async def join(self, transactional_id: str, identity: Identity, partitions: Collection[TopicIdPartition]) -> None:
        """Add the partitions to the record. After a KafkaError none of the batches may be appended."""
        ...


async def join_transaction(
    transactions: Transactions, directory: LogDirectory, transactional_id: str, parts: Sequence[ProducedPart]
) -> None:
    """Join those partitions of one request that need it; if a part cannot be joined, its `error` is set."""
    waiting: dict[Identity, list[ProducedPart]] = {}
    for part in parts:
        if part.error is not None:
            continue
        try:
            identity = _identity(part)
            if directory.log(part.partition).transactions.needs_join(*identity):
                waiting.setdefault(identity, []).append(part)
        except KafkaError as error:
            part.error = error
    for identity, joining in waiting.items():
        try:
            await transactions.join(transactional_id, identity, [part.partition for part in joining])
        except KafkaError as error:
            for part in joining:
                part.error = error
            continue
        for part in joining:
            try:  # this node may have lost the log, or loaded it again, during the join
                directory.log(part.partition).transactions.join(*identity)
            except KafkaError as error:
                part.error = error


def _identity(part: ProducedPart) -> Identity:
    """Return the identity that all batches of a part share. Raises InvalidRequestError."""
    found = {Identity(batch.producer_id, batch.producer_epoch) for batch in part.batches}
    if len(found) != 1:
        raise InvalidRequestError(
            f"the batches for one partition are of {len(found)} transactions; send one transaction at a time"
        )
    return found.pop()
