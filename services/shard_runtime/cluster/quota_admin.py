"""AlterClientQuotas and DescribeClientQuotas: the quotas in the metadata log (CM-191).

The changes that a request makes become one version of the metadata: all changes of an entity, or none. This node limits
by the new quotas as soon as the call returns; others follow the log (CM-20).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kip932.acls import CLUSTER_NAME, ResourceType
from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasRequest, AlterClientQuotasResponse
from kip932.api.v1.describe_client_quotas_pb2 import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import InvalidRequestError, KafkaError, RequestTimedOutError
from kip932.quotas import (
    CLIENT_ID,
    DEFAULT,
    ENTITY_NAME_MAX,
    REQUEST_QUOTAS_MAX,
    USER,
    QuotaEntity,
    entity_of,
    quota_text,
    refused_key,
    refused_value,
)
from shard_runtime.cluster.metadata import Change, MetadataImage, QuotaRemoved, QuotaSet
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns, check_configs
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.status import invalid_argument

#: The most entities of a cluster that have quotas: every node has all of them in memory.
CLUSTER_QUOTAS_MAX: Final = 10_000
#: How many entities are compared or listed before other tasks get a turn.
QUOTAS_SLICE: Final = 1_000
MATCH_NAME, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2

QuotaChange = QuotaSet | QuotaRemoved
_Outcome = list[QuotaChange] | KafkaError


class QuotaAdmin:
    """Serves the two RPCs."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    async def alter_client_quotas(
        self, request: AlterClientQuotasRequest, context: CallContext
    ) -> AlterClientQuotasResponse:
        """Set and remove quotas: all changes of an entity, or none."""
        if len(request.entries) > REQUEST_QUOTAS_MAX:
            raise invalid_argument(f"{len(request.entries)} entities; at most {REQUEST_QUOTAS_MAX} in one request")
        check_configs(sum(len(entry.ops) + len(entry.entity) for entry in request.entries))
        if refusal := context.refusal(ResourceType.CLUSTER, CLUSTER_NAME):
            return _altered(request, [refusal] * len(request.entries))
        asked = _read(request)
        outcomes: list[_Outcome] = asked

        def decide(image: MetadataImage) -> Sequence[Change]:
            nonlocal outcomes
            outcomes = _admitted(image, asked)
            if request.validate_only:
                return []
            return [change for outcome in outcomes if not isinstance(outcome, KafkaError) for change in outcome]

        failure: KafkaError | None = None
        try:
            await self._metadata.change(decide)
        except LogError as error:
            failure = RequestTimedOutError(f"not confirmed by the store, it may still take effect: {error}")
        if failure is None and not request.validate_only:
            made = [change for outcome in outcomes if not isinstance(outcome, KafkaError) for change in outcome]
            log_changes("quotas_altered", context, list(map(_change_text, made)))
        return _altered(request, [one if isinstance(one, KafkaError) else failure for one in outcomes])

    async def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, context: CallContext
    ) -> DescribeClientQuotasResponse:
        """Return the quotas of the entities that match, sorted."""
        try:
            context.require(ResourceType.CLUSTER, CLUSTER_NAME)
            wanted = _components(request)
        except KafkaError as error:
            return DescribeClientQuotasResponse(error_code=ErrorCode.ValueType(error.code), error_message=error.message)
        response, turns = DescribeClientQuotasResponse(), Turns(QUOTAS_SLICE)
        for entity, values in sorted(self._metadata.image.quotas.items(), key=lambda item: _order(item[0])):
            await turns.step()
            if _matches(entity, wanted, strict=request.strict):
                entry = response.entries.add()
                for kind, name in entity.parts:
                    entry.entity.add(entity_type=kind, entity_name=name)
                for key, value in sorted(values.items()):
                    entry.values.add(key=key, value=value)
        return response


def _read(request: AlterClientQuotasRequest) -> list[_Outcome]:
    """Return the changes that each entry asks for, or its error."""
    entities = [_entity(entry.entity) for entry in request.entries]
    times = Counter(entity for entity in entities if isinstance(entity, QuotaEntity))
    found: list[_Outcome] = []
    for entry, entity in zip(request.entries, entities, strict=True):
        if isinstance(entity, str):
            found.append(InvalidRequestError(entity))
        elif times[entity] > 1:
            found.append(InvalidRequestError(f"the request names {entity.text} {times[entity]} times; expected once"))
        else:
            try:
                found.append(_changes(entity, entry.ops))
            except InvalidRequestError as error:
                found.append(error)
    return found


def _entity(parts: Sequence[Any]) -> QuotaEntity | str:
    return entity_of([(part.entity_type, part.entity_name if part.HasField("entity_name") else None) for part in parts])


def _changes(entity: QuotaEntity, ops: Sequence[AlterClientQuotasRequest.Op]) -> list[QuotaChange]:
    """Return the changes of one entity. Raises InvalidRequestError."""
    changes: dict[str, QuotaChange] = {}
    for op in ops:
        refused = refused_key(op.key) or ("" if op.remove else refused_value(op.key, op.value))
        if not refused and op.key in changes:
            refused = f"{op.key} is named more than once for {entity.text}; expected once"
        if refused:
            raise InvalidRequestError(refused)
        changes[op.key] = QuotaRemoved(entity, op.key) if op.remove else QuotaSet(entity, op.key, op.value)
    return list(changes.values())


def _admitted(image: MetadataImage, asked: Sequence[_Outcome]) -> list[_Outcome]:
    """Return what each entry changes in this image; an error where there is no room for another entity."""
    found: list[_Outcome] = []
    count = len(image.quotas)
    for changes in asked:
        if isinstance(changes, KafkaError):
            found.append(changes)
            continue
        real = [change for change in changes if _differs(image, change)]
        is_new = any(isinstance(change, QuotaSet) and change.entity not in image.quotas for change in real)
        if is_new and count >= CLUSTER_QUOTAS_MAX:
            found.append(
                InvalidRequestError(
                    f"at most {CLUSTER_QUOTAS_MAX} entities of a cluster have quotas, and this would be one more; "
                    "remove some first, or set a default"
                )
            )
            continue
        count += is_new
        found.append(real)
    return found


def _differs(image: MetadataImage, change: QuotaChange) -> bool:
    stored = image.quotas.get(change.entity, {}).get(change.key)
    return stored is not None if isinstance(change, QuotaRemoved) else stored != change.value


def _components(request: DescribeClientQuotasRequest) -> dict[str, tuple[int, str]]:
    """Return what each part must match: match type and name. Raises InvalidRequestError."""
    found: dict[str, tuple[int, str]] = {}
    for one in request.components:
        kind = one.entity_type
        if kind not in {USER, CLIENT_ID}:
            raise InvalidRequestError(f"unknown entity type {kind[:ENTITY_NAME_MAX]!r}; expected {USER} or {CLIENT_ID}")
        if kind in found:
            raise InvalidRequestError(f"the request has two components of the type {kind}; expected one")
        if one.match_type not in {MATCH_NAME, MATCH_DEFAULT, MATCH_ANY}:
            raise InvalidRequestError(
                f"match type {one.match_type} has no meaning; expected 0 name, 1 default or 2 any"
            )
        if (one.match_type == MATCH_NAME) != bool(one.match):
            expected = "a name in match" if one.match_type == MATCH_NAME else "no name in match"
            raise InvalidRequestError(f"match type {one.match_type} of {kind} expects {expected}; found {one.match!r}")
        found[kind] = one.match_type, one.match
    return found


def _matches(entity: QuotaEntity, wanted: dict[str, tuple[int, str]], *, strict: bool) -> bool:
    names = {USER: entity.user, CLIENT_ID: entity.client_id}
    for kind, (match, expected) in wanted.items():
        name = names.pop(kind)
        if name is None or (match != MATCH_ANY and name != (DEFAULT if match == MATCH_DEFAULT else expected)):
            return False
    return not strict or all(name is None for name in names.values())


def _order(entity: QuotaEntity) -> tuple[bool, str, bool, str]:
    return entity.user is None, entity.user or "", entity.client_id is not None, entity.client_id or ""


def _change_text(change: QuotaChange) -> str:
    """Describe a change for the log."""
    done = " removed" if isinstance(change, QuotaRemoved) else f"={quota_text(change.value)}"
    return f"{change.entity.text} {change.key}{done}"


def _altered(request: AlterClientQuotasRequest, errors: Sequence[KafkaError | None]) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()
    for asked, error in zip(request.entries, errors, strict=True):
        response.entries.add(
            entity=asked.entity,
            error_code=error.code if error else 0,
            error_message=error.message if error else None,
        )
    return response
