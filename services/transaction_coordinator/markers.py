"""Writes the markers of a decided transaction to the leaders of its partitions (CM-155).

Each round calls all leaders of unmarked partitions at once. A leader reads the record itself before it writes, so a
repeated or late message does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

from kip932.api.v1.write_txn_markers_pb2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kip932.errors import KafkaError, NetworkError, error_for
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import Method, Transport, TransportError
from transaction_coordinator.core.transaction import Transaction

_WRITE: Final[Method[WriteTxnMarkersRequest, WriteTxnMarkersResponse]] = Method(
    "/kip932.api.v1.PartitionLeaderService/WriteTxnMarkers", WriteTxnMarkersRequest, WriteTxnMarkersResponse
)
#: How long one leader may take for its markers, in seconds.
_CALL_S: Final = 5.0
#: The most partitions in one message.
_PARTITIONS_MAX: Final = 2_000


class Leaders(Protocol):
    """The leaders of partitions, as far as this node knows them."""

    def address(self, partition: TopicIdPartition) -> str | None:
        """The address at which other nodes reach the partition's leader; None when none is known."""
        ...

    def gone(self, partition: TopicIdPartition) -> bool:
        """Return whether the partition is known to be deleted, so that it needs no marker."""
        ...


class MarkerCalls:
    """Calls the leaders to write markers."""

    def __init__(self, transport: Transport, leaders: Leaders) -> None:
        self._transport = transport
        self._leaders = leaders

    async def write(
        self, transactional_id: str, decided: Transaction, left: set[TopicIdPartition]
    ) -> KafkaError | None:
        """Make one round, and remove from `left` the partitions that now have their marker, or are deleted. Returns
        one of the errors, or None."""
        by_address: dict[str, list[TopicIdPartition]] = {}
        problem: KafkaError | None = None
        for partition in sorted(left):
            if self._leaders.gone(partition):
                left.discard(partition)
            elif address := self._leaders.address(partition):
                by_address.setdefault(address, []).append(partition)
            else:
                problem = NetworkError(f"no leader of {partition.text} is known")
        calls = [
            self._call(address, transactional_id, decided, parts[at : at + _PARTITIONS_MAX], left)
            for address, parts in by_address.items()
            for at in range(0, len(parts), _PARTITIONS_MAX)
        ]
        for found in await asyncio.gather(*calls):
            problem = found or problem
        return problem

    async def _call(
        self,
        address: str,
        transactional_id: str,
        decided: Transaction,
        partitions: Collection[TopicIdPartition],
        left: set[TopicIdPartition],
    ) -> KafkaError | None:
        request = _request(transactional_id, decided, partitions)
        try:
            response = await self._transport.call(address, _WRITE, request, _CALL_S)
        except TransportError as error:
            return NetworkError(f"{address}: {error}")
        problem: KafkaError | None = None
        for marker in response.markers:
            for topic in marker.topics:
                for part in topic.partitions:
                    refused = error_for(part.error_code, part.error_message)
                    if refused is None:
                        left.discard(TopicIdPartition(topic.topic_id, part.partition_index))
                    problem = refused or problem
        return problem


def _request(
    transactional_id: str, decided: Transaction, partitions: Collection[TopicIdPartition]
) -> WriteTxnMarkersRequest:
    request = WriteTxnMarkersRequest()
    marker = request.markers.add(
        producer_id=decided.identity.producer_id,
        producer_epoch=decided.identity.epoch,
        transaction_result=decided.commits,
        transactional_id=transactional_id,
    )
    topics: dict[bytes, WriteTxnMarkersRequest.Topic] = {}
    for topic_id, partition in partitions:
        if topic_id not in topics:
            topics[topic_id] = marker.topics.add(topic_id=topic_id)
        topics[topic_id].partition_indexes.append(partition)
    return request
