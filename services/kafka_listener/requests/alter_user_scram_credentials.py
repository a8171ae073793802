"""AlterUserScramCredentials (KL-64)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kip932.api.v1.alter_user_scram_credentials_pb2 import AlterUserScramCredentialsRequest
from kip932.errors import KafkaError

_RESPONSE: Final = api("AlterUserScramCredentials").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Set and remove users' passwords."""
    asked = node_request(request)
    try:
        response = await connection.call("alter_user_scram_credentials", asked)
    except KafkaError as error:
        names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
        return _RESPONSE(results=[_result(name, error.code, error.message) for name in names])
    return _RESPONSE(
        throttle_time_ms=response.throttle_time_ms,
        results=[_result(result.user, result.error_code, message_of(result)) for result in response.results],
    )


def node_request(request: Any) -> AlterUserScramCredentialsRequest:
    """Return the node's request."""
    asked = AlterUserScramCredentialsRequest()
    for deletion in request.deletions:
        asked.deletions.add(name=deletion.name, mechanism=deletion.mechanism)
    for upsertion in request.upsertions:
        asked.upsertions.add(
            name=upsertion.name,
            mechanism=upsertion.mechanism,
            iterations=upsertion.iterations,
            salt=bytes(upsertion.salt),
            salted_password=bytes(upsertion.salted_password),
        )
    return asked


def _result(user: str, code: int, message: str | None) -> Any:
    return _RESPONSE.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
