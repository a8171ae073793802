"""ShareGroupDescribe 1: the state, members and assignments of share groups (KL-72)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import share_group_describe_pb2 as pb
from kip932.errors import KafkaError
from shard_runtime.rpc.bounds import Turns

SHARE_GROUP_DESCRIBE: Final = api("ShareGroupDescribe")
_Response: Final = SHARE_GROUP_DESCRIBE.response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Describe groups. A request that is refused as a whole gets the error for each of its groups, as the response has
    no place for it."""
    try:
        described = await connection.call("share_group_describe", request_of(request))
    except KafkaError as error:
        code, message = error.code, error.message

        def refuse(group_id: str) -> Any:
            return _Response.DescribedGroup(group_id=group_id, error_code=code, error_message=message)

        return _Response(groups=await made_of(request.group_ids, refuse, slices()))
    return await response_of(request, described)


def request_of(request: Any) -> pb.ShareGroupDescribeRequest:
    """Return the request as the coordinator takes it."""
    return pb.ShareGroupDescribeRequest(
        group_ids=request.group_ids, include_authorized_operations=request.include_authorized_operations
    )


async def response_of(request: Any, response: pb.ShareGroupDescribeResponse) -> Any:
    """Return the coordinator's response as Kafka's: one entry for each id of the request, in its order, also for an id
    that it names twice; the coordinator describes that group once."""
    turns = slices()
    groups = {group.group_id: await _group(group, turns) for group in response.groups}
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        groups=[groups[group_id] for group_id in request.group_ids if group_id in groups],
    )


async def _group(group: pb.ShareGroupDescribeResponse.DescribedGroup, turns: Turns) -> Any:
    await turns.step()
    return _Response.DescribedGroup(
        error_code=group.error_code,
        error_message=group.error_message if group.HasField("error_message") else None,
        group_id=group.group_id,
        group_state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=[await _member(member, turns) for member in group.members],
        authorized_operations=group.authorized_operations,
    )


async def _member(member: pb.ShareGroupDescribeResponse.Member, turns: Turns) -> Any:
    await turns.step()
    topics = await made_of(
        member.assignment.topic_partitions,
        lambda topic: _Response.TopicPartitions(
            topic_id=topic.topic_id, topic_name=topic.topic_name, partitions=list(topic.partitions)
        ),
        turns,
    )
    return _Response.Member(
        member_id=member.member_id,
        rack_id=member.rack_id if member.HasField("rack_id") else None,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        assignment=_Response.Assignment(topic_partitions=topics),
    )
