"""DescribeShareGroupOffsets 0–1: start offsets and, in version 1, lags of share groups (KL-73)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kip932.api.v1 import describe_share_group_offsets_pb2 as pb
from kip932.errors import KafkaError
from shard_runtime.rpc.bounds import Turns

DESCRIBE_SHARE_GROUP_OFFSETS: Final = api("DescribeShareGroupOffsets")
_Response: Final = DESCRIBE_SHARE_GROUP_OFFSETS.response
#: How many partitions are translated before other tasks get to run.
_SLICE: Final = 500

_Request = pb.DescribeShareGroupOffsetsRequest


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Describe offsets. A request that is refused as a whole gets the error for each of its groups, as the response has
    no place for it."""
    try:
        described = await connection.call("describe_share_group_offsets", request_of(request))
    except KafkaError as error:
        return _Response(
            groups=[
                _Response.DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, error_code=error.code, error_message=error.message
                )
                for group in request.groups
            ]
        )
    return await response_of(described)


def request_of(request: Any) -> _Request:
    """Return the request as the coordinator takes it. Topics that are null stay absent: all that have state."""
    return _Request(groups=[_asked(group) for group in request.groups])


async def response_of(response: pb.DescribeShareGroupOffsetsResponse) -> Any:
    """Return the coordinator's response as Kafka's. The extension fields have no place in it."""
    turns = Turns(_SLICE)
    return _Response(
        throttle_time_ms=response.throttle_time_ms, groups=[await _group(group, turns) for group in response.groups]
    )


def _asked(group: Any) -> _Request.Group:
    topics = None
    if group.topics is not None:
        topics = _Request.TopicList(
            values=[_Request.Topic(topic_name=topic.topic_name, partitions=topic.partitions) for topic in group.topics]
        )
    return _Request.Group(group_id=group.group_id, topics=topics)


async def _group(group: pb.DescribeShareGroupOffsetsResponse.GroupResult, turns: Turns) -> Any:
    topics = []
    for topic in group.topics:
        await turns.step(1 + len(topic.partitions))
        topics.append(
            _Response.DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[_partition(partition) for partition in topic.partitions],
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
