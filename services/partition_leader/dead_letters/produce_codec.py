"""Sends letters to another node in Produce requests, and reads its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kip932.api.v1 import partition_leader_service_pb2 as service_pb
from kip932.api.v1 import produce_pb2 as pb
from kip932.errors import KafkaError, NetworkError, UnknownServerError, error_for
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import Method, Transport, TransportError
from partition_leader.topic_log.core.batch import NewBatch

PRODUCE: Final[Method[pb.ProduceRequest, pb.ProduceResponse]] = Method(
    f"/{service_pb.DESCRIPTOR.services_by_name['PartitionLeaderService'].full_name}/Produce",
    pb.ProduceRequest,
    pb.ProduceResponse,
)
_ACKS_ALL: Final = -1


async def produce(
    transport: Transport,
    address: str,
    parts: Mapping[TopicIdPartition, Sequence[NewBatch]],
    timeout_ms: int,
) -> dict[TopicIdPartition, KafkaError | None]:
    """Append to partitions that the node leads. Returns each partition's error, None when its batches are stored. When
    the node does not answer, every partition gets NetworkError, and its outcome is unknown."""
    request = pb.ProduceRequest(acks=_ACKS_ALL, timeout_ms=timeout_ms)
    topics: dict[bytes, pb.ProduceRequest.TopicData] = {}
    for (topic_id, index), batches in parts.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = request.topic_data.add(topic_id=topic_id)
        data = topic.partition_data.add(index=index)
        for batch in batches:
            data.batches.add(
                record_batch=batch.data, record_count=batch.record_count, max_timestamp_ms=batch.max_timestamp_ms
            )
    try:
        # The node answers within its own time-out; some time after that it counts as unreachable.
        response = await transport.call(address, PRODUCE, request, 1.25 * timeout_ms / 1000)
    except TransportError as error:
        return dict.fromkeys(parts, NetworkError(str(error)))
    found: dict[TopicIdPartition, KafkaError | None] = {
        TopicIdPartition(topic.topic_id, result.index): error_for(result.error_code, result.error_message)
        for topic in response.responses
        for result in topic.partition_responses
    }
    missing = UnknownServerError(f"the node at {address} answered nothing for this partition")
    return {partition: found.get(partition, missing) for partition in parts}
