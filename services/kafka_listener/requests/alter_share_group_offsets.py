"""AlterShareGroupOffsets 0: sets start offsets of an empty share group (KL-73)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import alter_share_group_offsets_pb2 as pb
from kip932.errors import KafkaError
from shard_runtime.rpc.bounds import Turns

ALTER_SHARE_GROUP_OFFSETS: Final = api("AlterShareGroupOffsets")
_Response: Final = ALTER_SHARE_GROUP_OFFSETS.response

_Request = pb.AlterShareGroupOffsetsRequest


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Alter offsets. An error of the call as a whole is that of the response."""
    try:
        return await response_of(await connection.call("alter_share_group_offsets", await request_of(request)))
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)


async def request_of(request: Any) -> _Request:
    """Return the request as the coordinator takes it."""
    asked, turns = _Request(group_id=request.group_id, topics=_Request.TopicList()), slices()
    for topic in request.topics:
        await turns.step()
        partitions = asked.topics.values.add(topic_name=topic.topic_name).partitions
        for each in topic.partitions:
            await turns.step()
            partitions.add(partition_index=each.partition_index, start_offset=each.start_offset)
    return asked


async def response_of(response: pb.AlterShareGroupOffsetsResponse) -> Any:
    """Return the coordinator's response as Kafka's."""
    turns = slices()
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=response.error_message if response.HasField("error_message") else None,
        responses=[await _topic(topic, turns) for topic in response.responses],
    )


async def _topic(topic: pb.AlterShareGroupOffsetsResponse.TopicResult, turns: Turns) -> Any:
    await turns.step()
    return _Response.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=topic.topic_id,
        partitions=await made_of(topic.partitions, _partition, turns),
    )


def _partition(partition: pb.AlterShareGroupOffsetsResponse.PartitionResult) -> Any:
    return _Response.AlterShareGroupOffsetsResponsePartition(
        partition_index=partition.partition_index,
        error_code=partition.error_code,
        error_message=partition.error_message if partition.HasField("error_message") else None,
    )
