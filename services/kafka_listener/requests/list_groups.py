"""ListGroups 0–5: the share groups that this node coordinates (KL-74). A client asks every node and merges."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import list_groups_pb2 as pb
from kip932.api.v1.common_pb2 import StringList
from kip932.errors import KafkaError, NotCoordinatorError

LIST_GROUPS: Final = api("ListGroups")
_Response: Final = LIST_GROUPS.response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """List this node's groups. A node that coordinates none has none to list, which is no error: a client asks every
    broker, and Kafka's would report the error of one node to its caller."""
    try:
        return await response_of(await connection.call("list_groups", request_of(request)))
    except NotCoordinatorError:
        return _Response()
    except KafkaError as error:
        return _Response(error_code=error.code)


def request_of(request: Any) -> pb.ListGroupsRequest:
    """Return the request as the coordinator takes it: an empty filter lists all, as in Kafka."""
    return pb.ListGroupsRequest(
        states_filter=StringList(values=request.states_filter), types_filter=StringList(values=request.types_filter)
    )


async def response_of(response: pb.ListGroupsResponse) -> Any:
    """Return the coordinator's response as Kafka's. Shards that other nodes own have no place in it; one that this node
    owns and cannot answer for is its error, upon which Kafka's clients ask again."""
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        groups=await made_of(response.groups, _group, slices()),
    )


def _group(group: pb.ListGroupsResponse.ListedGroup) -> Any:
    return _Response.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.group_state,
        group_type=group.group_type,
    )
