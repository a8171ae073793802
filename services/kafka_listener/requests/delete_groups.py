"""DeleteGroups 0–2: deletes empty share groups with all their state (KL-75)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kip932.api.v1 import delete_groups_pb2 as pb
from kip932.errors import KafkaError

DELETE_GROUPS: Final = api("DeleteGroups")
_Response: Final = DELETE_GROUPS.response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Delete groups. A request that is refused as a whole gets the error for each of its groups, as the response has no
    place for it."""
    try:
        return response_of(await connection.call("delete_groups", request_of(request)))
    except KafkaError as error:
        return _Response(
            results=[
                _Response.DeletableGroupResult(group_id=group_id, error_code=error.code)
                for group_id in dict.fromkeys(request.groups_names)
            ]
        )


def request_of(request: Any) -> pb.DeleteGroupsRequest:
    """Return the request as the coordinator takes it."""
    return pb.DeleteGroupsRequest(groups_names=request.groups_names)


def response_of(response: pb.DeleteGroupsResponse) -> Any:
    """Return the coordinator's response as Kafka's, which has no texts."""
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        results=[
            _Response.DeletableGroupResult(group_id=result.group_id, error_code=result.error_code)
            for result in response.results
        ],
    )
