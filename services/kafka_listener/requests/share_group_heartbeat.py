"""ShareGroupHeartbeat 1: membership, liveness and assignment of a share group (KL-71)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import share_group_heartbeat_pb2 as pb
from kip932.api.v1.common_pb2 import StringList
from kip932.errors import CoordinatorLoadInProgressError, KafkaError, ThrottlingQuotaExceededError

SHARE_GROUP_HEARTBEAT: Final = api("ShareGroupHeartbeat")
_Response: Final = SHARE_GROUP_HEARTBEAT.response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Pass a heartbeat on to the group's coordinator. Each error is that of the response as a whole."""
    try:
        return await response_of(await connection.call("share_group_heartbeat", request_of(request)))
    except ThrottlingQuotaExceededError as error:  # a code that ends a consumer of Kafka's for good
        return _Response(error_code=CoordinatorLoadInProgressError.code, error_message=error.message)
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)


def request_of(request: Any) -> pb.ShareGroupHeartbeatRequest:
    """Return the request as the coordinator takes it. Topic names that are null stay absent, since they mean
    "unchanged", and an empty list stays present."""
    names = request.subscribed_topic_names
    return pb.ShareGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_topic_names=None if names is None else StringList(values=names),
    )


async def response_of(response: pb.ShareGroupHeartbeatResponse) -> Any:
    """Return the coordinator's response as Kafka's. An absent assignment means "unchanged", an empty one "nothing"."""
    assignment = None
    if response.HasField("assignment"):
        assignment = _Response.Assignment(
            topic_partitions=await made_of(
                response.assignment.topic_partitions,
                lambda topic: _Response.TopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions)),
                slices(),
            )
        )
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=response.error_message if response.HasField("error_message") else None,
        member_id=response.member_id if response.HasField("member_id") else None,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=assignment,
    )
