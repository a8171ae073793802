"""CreateAcls (KL-63)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.acl_entries import binding_of
from kafka_listener.requests.refusals import message_of
from kip932.api.v1.create_acls_pb2 import CreateAclsRequest
from kip932.errors import KafkaError

_RESPONSE: Final = api("CreateAcls").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Add entries. All versions are answered alike."""
    asked = CreateAclsRequest(creations=[binding_of(creation) for creation in request.creations])
    try:
        response = await connection.call("create_acls", asked)
    except KafkaError as error:
        return _RESPONSE(
            results=[
                _RESPONSE.AclCreationResult(error_code=error.code, error_message=error.message)
                for _ in request.creations
            ]
        )
    return _RESPONSE(
        throttle_time_ms=response.throttle_time_ms,
        results=[
            _RESPONSE.AclCreationResult(error_code=result.error_code, error_message=message_of(result))
            for result in response.results
        ],
    )
