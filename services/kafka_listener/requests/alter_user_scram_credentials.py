"""AlterUserScramCredentials (KL-64)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.alter_user_scram_credentials_pb2 import AlterUserScramCredentialsRequest
from kip932.errors import KafkaError

_RESPONSE: Final = api("AlterUserScramCredentials").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Set and remove users' passwords."""
    asked, turns = await node_request(request), slices()
    try:
        response = await connection.call("alter_user_scram_credentials", asked)
    except KafkaError as error:
        names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
        code, message = error.code, error.message
        return _RESPONSE(results=await made_of(names, lambda name: _result(name, code, message), turns))
    results = await made_of(
        response.results, lambda result: _result(result.user, result.error_code, message_of(result)), turns
    )
    return _RESPONSE(throttle_time_ms=response.throttle_time_ms, results=results)


async def node_request(request: Any) -> AlterUserScramCredentialsRequest:
    """Return the node's request."""
    asked = AlterUserScramCredentialsRequest()
    turns = slices()
    for deletion in request.deletions:
        await turns.step()
        asked.deletions.add(name=deletion.name, mechanism=deletion.mechanism)
    for upsertion in request.upsertions:
        await turns.step()
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
