"""AlterShareGroupOffsets 0: sets start offsets of an empty share group (KL-73)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kip932.api.v1 import alter_share_group_offsets_pb2 as pb
from kip932.errors import KafkaError

ALTER_SHARE_GROUP_OFFSETS: Final = api("AlterShareGroupOffsets")
_Response: Final = ALTER_SHARE_GROUP_OFFSETS.response

_Request = pb.AlterShareGroupOffsetsRequest


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Alter offsets. An error of the call as a whole is that of the response."""
    try:
        return response_of(await connection.call("alter_share_group_offsets", request_of(request)))
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)


def request_of(request: Any) -> _Request:
    """Return the request as the coordinator takes it."""
    return _Request(group_id=request.group_id, topics=_Request.TopicList(values=[_topic(it) for it in request.topics]))


def response_of(response: pb.AlterShareGroupOffsetsResponse) -> Any:
    """Return the coordinator's response as Kafka's."""
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=response.error_message if response.HasField("error_message") else None,
        responses=[
            _Response.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[_partition(partition) for partition in topic.partitions],
            )
            for topic in response.responses
        ],
    )


def _topic(topic: Any) -> _Request.Topic:
    partitions = [
        _Request.Partition(partition_index=each.partition_index, start_offset=each.start_offset)
        for each in topic.partitions
    ]
    return _Request.Topic(topic_name=topic.topic_name, partitions=partitions)


def _partition(partition: pb.AlterShareGroupOffsetsResponse.PartitionResult) -> Any:
    return _Response.AlterShareGroupOffsetsResponsePartition(
        partition_index=partition.partition_index,
        error_code=partition.error_code,
        error_message=partition.error_message if partition.HasField("error_message") else None,
    )
