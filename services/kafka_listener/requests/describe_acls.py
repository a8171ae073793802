"""DescribeAcls (KL-63)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.acl_entries import filter_of
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import slices
from kip932.api.v1.describe_acls_pb2 import DescribeAclsRequest, DescribeAclsResponse
from kip932.errors import KafkaError

_RESPONSE: Final = api("DescribeAcls").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with the entries that match. All versions are answered alike."""
    try:
        return await answer_of(await connection.call("describe_acls", DescribeAclsRequest(filter=filter_of(request))))
    except KafkaError as error:
        return _RESPONSE(error_code=error.code, error_message=error.message)


async def answer_of(response: DescribeAclsResponse) -> Any:
    """Return the answer: entries by the resources that they apply to, in the order of the node's."""
    answered = _RESPONSE(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=message_of(response),
    )
    resources: dict[tuple[int, str, int], Any] = {}
    turns = slices()
    for acl in response.acls:
        await turns.step()
        key = (acl.resource_type, acl.resource_name, acl.resource_pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = _RESPONSE.DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.resource_pattern_type,
            )
        resource.acls.append(
            _RESPONSE.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
        )
    answered.resources = list(resources.values())
    return answered
