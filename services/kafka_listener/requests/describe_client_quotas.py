"""DescribeClientQuotas (KL-64)."""

from __future__ import annotations

from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.client_quota_pb2 import ClientQuotaEntity
from kip932.api.v1.describe_client_quotas_pb2 import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kip932.errors import KafkaError

_RESPONSE: Final = api("DescribeClientQuotas").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with the quotas of entities. Both versions are answered alike."""
    try:
        return await answer_of(await connection.call("describe_client_quotas", node_request(request)))
    except KafkaError as error:
        return _RESPONSE(error_code=error.code, error_message=error.message, entries=None)


def node_request(request: Any) -> DescribeClientQuotasRequest:
    """Return the node's request."""
    asked = DescribeClientQuotasRequest(strict=request.strict)
    for component in request.components:
        asked.components.add(entity_type=component.entity_type, match_type=component.match_type, match=component.match)
    return asked


async def answer_of(response: DescribeClientQuotasResponse) -> Any:
    """Return the answer; with an error it has no entries at all."""
    entries = await made_of(response.entries, _entry, slices())
    return _RESPONSE(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=message_of(response),
        entries=None if response.error_code else entries,
    )


def _entry(entry: DescribeClientQuotasResponse.Entry) -> Any:
    return _RESPONSE.EntryData(
        entity=[_part(part) for part in entry.entity],
        values=[_RESPONSE.ValueData(key=value.key, value=value.value) for value in entry.values],
    )


def _part(part: ClientQuotaEntity) -> Any:
    return _RESPONSE.EntityData(
        entity_type=part.entity_type, entity_name=part.entity_name if part.HasField("entity_name") else None
    )
