"""Administration of the quotas of clients (CL-160, CM-191): set, remove, list. Any node answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasRequest
from kip932.api.v1.describe_client_quotas_pb2 import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kip932.errors import KafkaError, NetworkError, error_for
from kip932.quotas import QuotaEntity, entity_of
from sharegroups import arguments
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import at_any, until_answered

_EXAMPLE: Final = 'alter_client_quotas({QuotaEntity(user="alice"): {"producer_byte_rate": 1_000_000}})'


class QuotaAdmin:
    """The part of the admin client for quotas of clients."""

    _cluster: Cluster
    _timeout_s: float

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        """Set quotas of clients, and remove those whose value is None, all in one request (CL-160). Returns the error
        of each entity, or None: all its changes are made, or none.

        Raises KafkaError; after a RequestTimedOutError the changes may or may not have been made.
        """
        call = "alter_client_quotas"
        given = arguments.mapping(call, "changes", changes, "entities to quotas", _EXAMPLE)
        request = AlterClientQuotasRequest(validate_only=validate_only)
        for entity, quotas in given.items():
            if not isinstance(entity, QuotaEntity):
                raise arguments.refusal(call, "an entity", entity, "a QuotaEntity", _EXAMPLE)
            entry = request.entries.add()
            for kind, name in entity.parts:
                text = name if name is None else arguments.text(call, f"the name of the {kind}", name)
                entry.entity.add(entity_type=kind, entity_name=text)
            for key, value in arguments.mapping(call, f"the quotas of {entity.text}", quotas, "names to values",
                                                '{"producer_byte_rate": 1_000_000}').items():  # fmt: skip
                name = arguments.text(call, "the name of a quota", key)
                if isinstance(value, bool) or not isinstance(value, int | float | None):
                    raise arguments.refusal(call, key, value, "a number, or None to remove it", _EXAMPLE)
                entry.ops.add(key=name, value=value or 0.0, remove=value is None)
        response = await at_any(self._cluster, wire.ALTER_CLIENT_QUOTAS, request, self._timeout_s)
        if len(response.entries) != len(given):
            raise NetworkError(f"the answer to {call} has {len(response.entries)} results for {len(given)} entities")
        return {
            entity: error_for(result.error_code, result.error_message)
            for entity, result in zip(given, response.entries, strict=True)
        }

    async def describe_client_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities that have any, in the order of the entities (CL-160).

        Raises KafkaError: ClusterAuthorizationFailedError for a caller that may not list them, RequestTimedOutError.
        """

        async def ask() -> DescribeClientQuotasResponse:
            one_s = min(self._timeout_s, self._cluster.timeout_s)
            answer = await self._cluster.ask_any(wire.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(), one_s)
            if error := error_for(answer.error_code, answer.error_message):
                raise error
            return answer

        found = await until_answered(self._cluster, "DescribeClientQuotas", self._timeout_s, ask)
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        for entry in found.entries:
            entity = entity_of(
                (part.entity_type, part.entity_name if part.HasField("entity_name") else None) for part in entry.entity
            )
            if isinstance(entity, QuotaEntity):  # a later version may have other types
                quotas[entity] = {one.key: one.value for one in entry.values}
        return quotas
