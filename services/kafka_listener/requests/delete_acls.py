"""DeleteAcls (KL-63)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.acl_entries import filter_of
from kafka_listener.requests.refusals import NONE, message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.acl_pb2 import AclBinding
from kip932.api.v1.delete_acls_pb2 import DeleteAclsRequest
from kip932.errors import KafkaError

_RESPONSE: Final = api("DeleteAcls").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Remove the entries that match. All versions are answered alike."""
    turns = slices()
    asked = DeleteAclsRequest(filters=await made_of(request.filters, filter_of, turns))
    try:
        response = await connection.call("delete_acls", asked)
    except KafkaError as error:
        code, message = error.code, error.message

        def refuse(_: Any) -> Any:
            return _RESPONSE.DeleteAclsFilterResult(error_code=code, error_message=message)

        return _RESPONSE(filter_results=await made_of(request.filters, refuse, turns))
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    for result in response.filter_results:
        await turns.step()
        answered.filter_results.append(
            _RESPONSE.DeleteAclsFilterResult(
                error_code=result.error_code,
                error_message=message_of(result),
                matching_acls=await made_of(result.matching_acls, _removed, turns),
            )
        )
    return answered


def _removed(acl: AclBinding) -> Any:
    return _RESPONSE.DeleteAclsMatchingAcl(
        error_code=NONE,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.resource_pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
