"""AlterClientQuotas (KL-64)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasRequest, AlterClientQuotasResponse
from kip932.errors import KafkaError

_RESPONSE: Final = api("AlterClientQuotas").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Set and remove quotas. Both versions are answered alike."""
    asked = await node_request(request)
    try:
        return await answer_of(await connection.call("alter_client_quotas", asked))
    except KafkaError as error:
        code, message = error.code, error.message
        return _RESPONSE(entries=await made_of(asked.entries, lambda entry: _entry(entry, code, message), slices()))


async def node_request(request: Any) -> AlterClientQuotasRequest:
    """Return the node's request."""
    asked = AlterClientQuotasRequest(validate_only=request.validate_only)
    turns = slices()
    for entry in request.entries:
        await turns.step(1 + len(entry.entity) + len(entry.ops))
        one = asked.entries.add()
        for part in entry.entity:
            one.entity.add(entity_type=part.entity_type, entity_name=part.entity_name)
        for change in entry.ops:
            one.ops.add(key=change.key, value=change.value, remove=change.remove)
    return asked


async def answer_of(response: AlterClientQuotasResponse) -> Any:
    """Return the answer."""
    entries = await made_of(
        response.entries, lambda entry: _entry(entry, entry.error_code, message_of(entry)), slices()
    )
    return _RESPONSE(throttle_time_ms=response.throttle_time_ms, entries=entries)


def _entry(of: Any, code: int, message: str | None) -> Any:
    return _RESPONSE.EntryData(error_code=code, error_message=message, entity=_entity(of.entity))


def _entity(parts: Iterable[Any]) -> list[Any]:
    return [
        _RESPONSE.EntityData(
            entity_type=part.entity_type, entity_name=part.entity_name if part.HasField("entity_name") else None
        )
        for part in parts
    ]
