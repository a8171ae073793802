"""WriteTxnMarkers: appends the markers of a decided transaction to the logs that this node leads (CM-155).

The request is only a hint: the marker is chosen by the transaction's record, read after the request arrived. So a
request that arrives twice, late, or by mistake cannot end a transaction differently from how it was decided.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from kip932.api.v1 import write_txn_markers_pb2 as pb
from kip932.errors import InvalidTxnStateError, KafkaError
from kip932.ids import TopicIdPartition
from partition_leader.topic_rpc.error_codec import LeaderNames, wire_code
from partition_leader.topic_rpc.log_directory import LogDirectory, checked_topic_id
from shard_runtime.rpc.bounds import Turns, check_partitions
from transaction_coordinator.core.transaction import Fate, Identity, fate
from transaction_coordinator.records import ReadRecord

#: How many partitions are handled before other tasks run.
_STEP: Final = 256
_Result = pb.WriteTxnMarkersResponse.PartitionResult


class Records(Protocol):
    """The records of transactional ids."""

    async def read(self, transactional_id: str) -> ReadRecord:
        """Return the record. Raises KafkaError."""
        ...


class MarkerService:
    """The handler. `directory` holds the logs that this node leads."""

    def __init__(self, directory: LogDirectory, records: Records) -> None:
        self._directory = directory
        self._records = records

    async def write_txn_markers(
        self, request: pb.WriteTxnMarkersRequest, context: object = None
    ) -> pb.WriteTxnMarkersResponse:
        """Append markers; respond per partition once they are durable. Raises InvalidRequestError for a bad topic id or
        too many partitions."""
        check_partitions(*((marker.topics, "partition_indexes") for marker in request.markers))
        response, turns, names = pb.WriteTxnMarkersResponse(), Turns(_STEP), LeaderNames(self._directory)
        for marker in request.markers:
            topics = response.markers.add(producer_id=marker.producer_id).topics
            results: list[tuple[TopicIdPartition, _Result]] = []
            for topic in marker.topics:
                parts = topics.add(topic_id=checked_topic_id(topic.topic_id)).partitions
                for index in topic.partition_indexes:
                    await turns.step()
                    results.append((TopicIdPartition(topic.topic_id, index), parts.add(partition_index=index)))
            await self._write(marker, results, names)
        response.node_endpoints.extend(names.endpoints)
        return response

    async def _write(
        self,
        marker: pb.WriteTxnMarkersRequest.Marker,
        results: list[tuple[TopicIdPartition, _Result]],
        names: LeaderNames,
    ) -> None:
        identity = Identity(marker.producer_id, marker.producer_epoch)
        try:
            commit = _decided(
                fate((await self._records.read(marker.transactional_id)).transaction, identity), marker, identity
            )
        except KafkaError as error:
            outcomes: list[KafkaError | None] = [error] * len(results)
        else:
            outcomes = await asyncio.gather(*(self._end(partition, identity, commit) for partition, _ in results))
        for (partition, result), problem in zip(results, outcomes, strict=True):
            if problem is not None:
                result.error_code, result.error_message = wire_code(problem), problem.message
                names.fill(result.current_leader, partition, problem)

    async def _end(self, partition: TopicIdPartition, identity: Identity, commit: bool) -> KafkaError | None:
        try:
            await self._directory.log(partition).transactions.end(*identity, commit=commit)
        except KafkaError as error:
            return error.with_traceback(None)
        return None


def _decided(found: Fate, marker: pb.WriteTxnMarkersRequest.Marker, identity: Identity) -> bool:
    """Return whether the transaction was committed. Raises InvalidTxnStateError while it is open, or when the request
    contradicts the record."""
    if found is Fate.WAITS or (found is Fate.COMMITTED) is not marker.transaction_result:
        raise InvalidTxnStateError(
            f"the record of transactional id {marker.transactional_id!r} says of producer {identity.producer_id}, "
            f"epoch {identity.epoch}: {found.name.lower()}; the marker that was asked for is a "
            f"{'COMMIT' if marker.transaction_result else 'ABORT'}. Nothing was written"
        )
    return found is Fate.COMMITTED
