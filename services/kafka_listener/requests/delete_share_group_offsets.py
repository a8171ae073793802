"""DeleteShareGroupOffsets 0: deletes the state of topics of an empty share group (KL-73)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import delete_share_group_offsets_pb2 as pb
from kip932.errors import KafkaError

DELETE_SHARE_GROUP_OFFSETS: Final = api("DeleteShareGroupOffsets")
_Response: Final = DELETE_SHARE_GROUP_OFFSETS.response

_Request = pb.DeleteShareGroupOffsetsRequest


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Delete offsets. An error of the call as a whole is that of the response."""
    try:
        return await response_of(await connection.call("delete_share_group_offsets", await request_of(request)))
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)


async def request_of(request: Any) -> _Request:
    """Return the request as the coordinator takes it."""
    asked, turns = _Request(group_id=request.group_id, topics=_Request.TopicList()), slices()
    for topic in request.topics:
        await turns.step()
        asked.topics.values.add(topic_name=topic.topic_name)
    return asked


async def response_of(response: pb.DeleteShareGroupOffsetsResponse) -> Any:
    """Return the coordinator's response as Kafka's."""
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=response.error_message if response.HasField("error_message") else None,
        responses=await made_of(response.responses, _topic, slices()),
    )


def _topic(topic: pb.DeleteShareGroupOffsetsResponse.TopicResult) -> Any:
    return _Response.DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=topic.topic_id,
        error_code=topic.error_code,
        error_message=topic.error_message if topic.HasField("error_message") else None,
    )
