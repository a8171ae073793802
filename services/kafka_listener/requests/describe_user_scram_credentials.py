"""DescribeUserScramCredentials (KL-64)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import slices
from kip932.api.v1.describe_user_scram_credentials_pb2 import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kip932.errors import KafkaError

_RESPONSE: Final = api("DescribeUserScramCredentials").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with users, without any key. No users, or null, asks for all."""
    asked = DescribeUserScramCredentialsRequest()
    turns = slices()
    for user in request.users or ():
        await turns.step()
        asked.users.add(name=user.name)
    try:
        return await answer_of(await connection.call("describe_user_scram_credentials", asked))
    except KafkaError as error:
        return _RESPONSE(error_code=error.code, error_message=error.message)


async def answer_of(response: DescribeUserScramCredentialsResponse) -> Any:
    """Return the answer."""
    answered = _RESPONSE(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=message_of(response),
    )
    turns = slices()
    for result in response.results:
        await turns.step()
        answered.results.append(
            _RESPONSE.DescribeUserScramCredentialsResult(
                user=result.user,
                error_code=result.error_code,
                error_message=message_of(result),
                credential_infos=[
                    _RESPONSE.CredentialInfo(mechanism=each.mechanism, iterations=each.iterations)
                    for each in result.credential_infos
                ],
            )
        )
    return answered
