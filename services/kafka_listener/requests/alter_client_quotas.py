"""AlterClientQuotas (KL-64)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasRequest, AlterClientQuotasResponse
from kip932.errors import KafkaError

_RESPONSE: Final = api("AlterClientQuotas").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Set and remove quotas. Both versions are answered alike."""
    asked = node_request(request)
    try:
        return answer_of(await connection.call("alter_client_quotas", asked))
    except KafkaError as error:
        return _RESPONSE(entries=[_entry(entry, error.code, error.message) for entry in asked.entries])


def node_request(request: Any) -> AlterClientQuotasRequest:
    """Return the node's request."""
    asked = AlterClientQuotasRequest(validate_only=request.validate_only)
    for entry in request.entries:
        one = asked.entries.add()
        for part in entry.entity:
            one.entity.add(entity_type=part.entity_type, entity_name=part.entity_name)
        for change in entry.ops:
            one.ops.add(key=change.key, value=change.value, remove=change.remove)
    return asked


def answer_of(response: AlterClientQuotasResponse) -> Any:
    """Return the answer."""
    return _RESPONSE(
        throttle_time_ms=response.throttle_time_ms,
        entries=[_entry(entry, entry.error_code, message_of(entry)) for entry in response.entries],
    )


def _entry(of: Any, code: int, message: str | None) -> Any:
    return _RESPONSE.EntryData(error_code=code, error_message=message, entity=_entity(of.entity))


def _entity(parts: Iterable[Any]) -> list[Any]:
    return [
        _RESPONSE.EntityData(
            entity_type=part.entity_type, entity_name=part.entity_name if part.HasField("entity_name") else None
        )
        for part in parts
    ]
