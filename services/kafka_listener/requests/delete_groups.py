"""DeleteGroups 0–2: deletes empty share groups with all their state (KL-75)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import delete_groups_pb2 as pb
from kip932.errors import KafkaError

DELETE_GROUPS: Final = api("DeleteGroups")
_Response: Final = DELETE_GROUPS.response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Delete groups. A request that is refused as a whole gets the error for each of its groups, as the response has no
    place for it."""
    try:
        return await response_of(await connection.call("delete_groups", request_of(request)))
    except KafkaError as error:
        code = error.code
        return _Response(
            results=await made_of(
                dict.fromkeys(request.groups_names),
                lambda group_id: _Response.DeletableGroupResult(group_id=group_id, error_code=code),
                slices(),
            )
        )


def request_of(request: Any) -> pb.DeleteGroupsRequest:
    """Return the request as the coordinator takes it."""
    return pb.DeleteGroupsRequest(groups_names=request.groups_names)


async def response_of(response: pb.DeleteGroupsResponse) -> Any:
    """Return the coordinator's response as Kafka's, which has no texts."""
    results = await made_of(
        response.results,
        lambda result: _Response.DeletableGroupResult(group_id=result.group_id, error_code=result.error_code),
        slices(),
    )
    return _Response(throttle_time_ms=response.throttle_time_ms, results=results)
