"""DescribeShareGroupOffsets 0–1: start offsets and, in version 1, lags of share groups (KL-73)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import describe_share_group_offsets_pb2 as pb
from kip932.errors import KafkaError
from shard_runtime.rpc.bounds import Turns

DESCRIBE_SHARE_GROUP_OFFSETS: Final = api("DescribeShareGroupOffsets")
_Response: Final = DESCRIBE_SHARE_GROUP_OFFSETS.response

_Request = pb.DescribeShareGroupOffsetsRequest


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Describe offsets. A request that is refused as a whole gets the error for each of its groups, as the response has
    no place for it."""
    try:
        described = await connection.call("describe_share_group_offsets", await request_of(request))
    except KafkaError as error:
        code, message = error.code, error.message

        def refuse(group: Any) -> Any:
            return _Response.DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=code, error_message=message
            )

        return _Response(groups=await made_of(request.groups, refuse, slices()))
    return await response_of(described)


async def request_of(request: Any) -> _Request:
    """Return the request as the coordinator takes it. Topics that are null stay absent: all that have state."""
    asked, turns = _Request(), slices()
    for group in request.groups:
        await turns.step()
        one = asked.groups.add(group_id=group.group_id)
        if group.topics is not None:
            one.topics.SetInParent()
            for topic in group.topics:
                await turns.step()
                one.topics.values.add(topic_name=topic.topic_name, partitions=topic.partitions)
    return asked


async def response_of(response: pb.DescribeShareGroupOffsetsResponse) -> Any:
    """Return the coordinator's response as Kafka's. The extension fields have no place in it."""
    turns = slices()
    return _Response(
        throttle_time_ms=response.throttle_time_ms, groups=[await _group(group, turns) for group in response.groups]
    )


async def _group(group: pb.DescribeShareGroupOffsetsResponse.GroupResult, turns: Turns) -> Any:
    await turns.step()
    topics = []
    for topic in group.topics:
        await turns.step()
        topics.append(
            _Response.DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=await made_of(topic.partitions, _partition, turns),
            )
        )
    return _Response.DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id,
        topics=topics,
        error_code=group.error_code,
        error_message=group.error_message if group.HasField("error_message") else None,
    )


def _partition(partition: pb.DescribeShareGroupOffsetsResponse.PartitionResult) -> Any:
    return _Response.DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition.partition_index,
        start_offset=partition.start_offset,
        leader_epoch=partition.leader_epoch,
        lag=partition.lag,
        error_code=partition.error_code,
        error_message=partition.error_message if partition.HasField("error_message") else None,
    )
