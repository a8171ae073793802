"""CreateAcls, DescribeAcls, DeleteAcls: the access control entries in the metadata log (CM-61).

The entries that a request adds or removes become one version of the metadata. An entry is stored or removed, or its
result is an error. This node decides with the new entries as soon as the call returns; others follow the log (CM-20).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kip932.acls import (
    CLUSTER_NAME,
    REQUEST_ACLS_MAX,
    Acl,
    AclFilter,
    PatternType,
    ResourceType,
    refused_binding,
    refused_filter,
)
from kip932.api.v1 import acl_pb2
from kip932.api.v1.create_acls_pb2 import CreateAclsRequest, CreateAclsResponse
from kip932.api.v1.delete_acls_pb2 import DeleteAclsRequest, DeleteAclsResponse
from kip932.api.v1.describe_acls_pb2 import DescribeAclsRequest, DescribeAclsResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import InvalidRequestError, KafkaError, RequestTimedOutError
from shard_runtime.cluster.metadata import AclAdded, AclRemoved, Change, MetadataImage
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns
from shard_runtime.rpc.change_log import log_changes
from shard_runtime.rpc.status import invalid_argument

#: The most entries of a cluster: every node has all of them in memory.
CLUSTER_ACLS_MAX: Final = 10_000
#: The most entries that one DeleteAcls lists, those that several filters match each time (CM-91). One filter may match
#: all entries of a cluster.
LISTED_ACLS_MAX: Final = CLUSTER_ACLS_MAX
#: How many entries are checked, compared or listed before other tasks get a turn.
ACLS_SLICE: Final = 1_000


class AclAdmin:
    """Serves the three RPCs."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    # ---- create

    async def create_acls(self, request: CreateAclsRequest, context: CallContext) -> CreateAclsResponse:
        """Add entries. One that already exists is not an error, and changes nothing."""
        _bounded(len(request.creations), "entries")
        if refusal := context.refusal(ResourceType.CLUSTER, CLUSTER_NAME):
            return _created([refusal] * len(request.creations))
        checked: list[Acl | KafkaError] = []
        turns = Turns(ACLS_SLICE)
        for creation in request.creations:
            await turns.step()
            acl = _acl(creation)
            refused = refused_binding(acl)
            checked.append(InvalidRequestError(refused) if refused else acl)
        outcomes: list[Acl | KafkaError] = checked
        added: dict[Acl, None] = {}  # an ordered set

        def decide(image: MetadataImage) -> Sequence[Change]:
            nonlocal outcomes
            added.clear()
            outcomes = [
                each if isinstance(each, KafkaError) else self._admitted(image, each, added) for each in checked
            ]
            return [AclAdded(acl) for acl in added]

        failure = await self._change(decide)
        if failure is None:
            log_changes("acls_created", context, [acl.text for acl in added])
        return _created([outcome if isinstance(outcome, KafkaError) else failure for outcome in outcomes])

    @staticmethod
    def _admitted(image: MetadataImage, acl: Acl, added: dict[Acl, None]) -> Acl | KafkaError:
        """Add an entry to those that a request adds, unless it exists. Returns an error when there is no room for
        it."""
        if acl in image.acls or acl in added:
            return acl
        if len(image.acls) + len(added) >= CLUSTER_ACLS_MAX:
            return InvalidRequestError(
                f"a cluster has at most {CLUSTER_ACLS_MAX} access control entries, and this one would be one more; "
                "remove some first, or replace several by one with a prefix or *"
            )
        added[acl] = None
        return acl

    # ---- describe

    async def describe_acls(self, request: DescribeAclsRequest, context: CallContext) -> DescribeAclsResponse:
        """Return the entries that match, sorted."""
        wanted = _filter(request.filter)
        error = context.refusal(ResourceType.CLUSTER, CLUSTER_NAME)
        if error is None and (refusal := refused_filter(wanted)):
            error = InvalidRequestError(refusal)
        if error is not None:
            return DescribeAclsResponse(error_code=ErrorCode.ValueType(error.code), error_message=error.message)
        response = DescribeAclsResponse()
        turns = Turns(ACLS_SLICE)
        for acl in sorted(await _matching(wanted, self._metadata.image.acls, turns)):
            await turns.step()
            response.acls.add(**acl._asdict())
        return response

    # ---- delete

    async def delete_acls(self, request: DeleteAclsRequest, context: CallContext) -> DeleteAclsResponse:
        """Remove the entries that match at least one of the filters. An entry that several filters match is listed
        under each."""
        _bounded(len(request.filters), "filters")
        filters = [_filter(each) for each in request.filters]
        outcomes: list[set[Acl] | KafkaError]
        if refusal := context.refusal(ResourceType.CLUSTER, CLUSTER_NAME):
            outcomes = [refusal] * len(filters)
        else:
            outcomes = await self._remove(filters, context)
        response, turns = DeleteAclsResponse(), Turns(ACLS_SLICE)
        for outcome in outcomes:
            await turns.step()
            result = response.filter_results.add()
            if isinstance(outcome, KafkaError):
                result.error_code, result.error_message = ErrorCode.ValueType(outcome.code), outcome.message
                continue
            for acl in sorted(outcome):
                await turns.step()
                result.matching_acls.add(**acl._asdict())
        return response

    async def _remove(self, filters: Sequence[AclFilter], context: CallContext) -> list[set[Acl] | KafkaError]:
        """Remove what the filters match. Returns for each the entries that it matches, or why none was removed."""
        seen = self._metadata.image.acls
        # To compare every filter with every entry takes long. So it is done here, where other tasks get turns, with the
        # entries that this node knows. The decision compares only those that were added since.
        early = await _early(filters, seen)
        outcomes: list[set[Acl] | KafkaError] = early
        removed: list[Acl] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            nonlocal outcomes
            new, matched = image.acls - seen, _Matched()
            for wanted, known in zip(filters, early, strict=True):
                if isinstance(known, KafkaError):
                    matched.refuse(known)
                else:
                    matched.add((known & image.acls) | {acl for acl in new if wanted.matches(acl)})
            outcomes = matched.outcomes
            removed[:] = sorted(matched.all())
            return [AclRemoved(acl) for acl in removed]

        failure = await self._change(decide)
        if failure is None:
            log_changes("acls_deleted", context, [acl.text for acl in removed])
            return outcomes
        return [outcome if isinstance(outcome, KafkaError) else failure for outcome in outcomes]

    # ---- shared

    async def _change(self, decide: Callable[[MetadataImage], Sequence[Change]]) -> KafkaError | None:
        try:
            await self._metadata.change(decide)
        except LogError as error:
            return RequestTimedOutError(f"not confirmed by the store, it may still take effect: {error}")
        return None


class _Matched:
    """What the filters of a request match, in their order. A filter with which more entries would be listed than one
    response may have is refused."""

    def __init__(self) -> None:
        self.outcomes: list[set[Acl] | KafkaError] = []
        self._listed = 0

    def refuse(self, error: KafkaError) -> None:
        self.outcomes.append(error)

    def add(self, acls: set[Acl]) -> None:
        if self._listed + len(acls) > LISTED_ACLS_MAX:
            self.refuse(
                InvalidRequestError(
                    f"with this filter the request would list more than {LISTED_ACLS_MAX} entries, so nothing was "
                    "removed for it; put fewer filters into one request"
                )
            )
        else:
            self._listed += len(acls)
            self.outcomes.append(acls)

    def all(self) -> set[Acl]:
        return set(itertools.chain(*(each for each in self.outcomes if not isinstance(each, KafkaError))))


class _Index:
    """Entries by what most filters name, so that a request to remove 1,000 single entries need not compare each with
    all."""

    def __init__(self, acls: frozenset[Acl]) -> None:
        self._all = acls
        self._by_name: dict[str, list[Acl]] = {}
        self._by_principal: dict[str, list[Acl]] = {}
        for acl in acls:
            self._by_name.setdefault(acl.resource_name, []).append(acl)
            self._by_principal.setdefault(acl.principal, []).append(acl)

    def candidates(self, wanted: AclFilter) -> Collection[Acl]:
        """Return entries among which are all that the filter matches."""
        found: list[Collection[Acl]] = [self._all]
        if wanted.resource_name is not None and wanted.resource_pattern_type != PatternType.MATCH:
            found.append(self._by_name.get(wanted.resource_name, ()))
        if wanted.principal is not None:
            found.append(self._by_principal.get(wanted.principal, ()))
        return min(found, key=len)


async def _early(filters: Sequence[AclFilter], acls: frozenset[Acl]) -> list[set[Acl] | KafkaError]:
    turns, matched, index = Turns(ACLS_SLICE), _Matched(), _Index(acls)
    for wanted in filters:
        await turns.step()
        if refusal := refused_filter(wanted):
            matched.refuse(InvalidRequestError(refusal))
        else:
            matched.add(await _matching(wanted, index.candidates(wanted), turns))
    return matched.outcomes


async def _matching(wanted: AclFilter, acls: Collection[Acl], turns: Turns) -> set[Acl]:
    found: set[Acl] = set()
    rest = iter(acls)
    while some := list(itertools.islice(rest, ACLS_SLICE)):
        found.update(acl for acl in some if wanted.matches(acl))
        await turns.step(len(some))
    return found


def _acl(binding: acl_pb2.AclBinding) -> Acl:
    return Acl(
        binding.resource_type,
        binding.resource_name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def _filter(given: acl_pb2.AclFilter) -> AclFilter:
    return AclFilter(
        given.resource_type,
        given.resource_name if given.HasField("resource_name") else None,
        given.resource_pattern_type,
        given.principal if given.HasField("principal") else None,
        given.host if given.HasField("host") else None,
        given.operation,
        given.permission_type,
    )


def _created(errors: Sequence[KafkaError | None]) -> CreateAclsResponse:
    response = CreateAclsResponse()
    for error in errors:
        response.results.add(error_code=error.code if error else 0, error_message=error.message if error else None)
    return response


def _bounded(count: int, what: str) -> None:
    if count > REQUEST_ACLS_MAX:
        raise invalid_argument(f"{count} {what}; at most {REQUEST_ACLS_MAX} in one request")
