"""CreateAcls (KL-63)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.acl_entries import binding_of
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.create_acls_pb2 import CreateAclsRequest
from kip932.errors import KafkaError

_RESPONSE: Final = api("CreateAcls").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Add entries. All versions are answered alike."""
    turns = slices()
    asked = CreateAclsRequest(creations=await made_of(request.creations, binding_of, turns))
    try:
        response = await connection.call("create_acls", asked)
    except KafkaError as error:
        code, message = error.code, error.message
        return _RESPONSE(results=await made_of(request.creations, lambda _: _result(code, message), turns))
    return _RESPONSE(
        throttle_time_ms=response.throttle_time_ms,
        results=await made_of(response.results, lambda result: _result(result.error_code, message_of(result)), turns),
    )


def _result(code: int, message: str | None) -> Any:
    return _RESPONSE.AclCreationResult(error_code=code, error_message=message)
