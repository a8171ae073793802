"""Administration of access control entries (CL-157, CM-61): add, list, remove. Any node answers."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from enum import IntEnum

from kip932.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kip932.api.v1 import acl_pb2
from kip932.api.v1.create_acls_pb2 import CreateAclsRequest
from kip932.api.v1.delete_acls_pb2 import DeleteAclsRequest
from kip932.api.v1.describe_acls_pb2 import DescribeAclsRequest, DescribeAclsResponse
from kip932.errors import KafkaError, NetworkError, error_for
from sharegroups import arguments
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import at_any, until_answered

_ACL = 'Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)'
_FILTER = 'AclFilter(principal="User:a")'


class AclAdmin:
    """The part of the admin client for access control entries."""

    _cluster: Cluster
    _timeout_s: float

    async def create_acls(self, acls: Iterable[Acl]) -> dict[Acl, KafkaError | None]:
        """Add access control entries, all in one request (CL-157). Returns the error of each entry, or None; an entry
        that already exists is not an error.

        Raises KafkaError; after a RequestTimedOutError the entries may or may not exist.
        """
        call = "create_acls"
        given = arguments.items(call, acls, "Acl", Acl, f"{call}([{_ACL}])")
        wanted = list(dict.fromkeys(given))
        request = CreateAclsRequest(creations=[_binding(call, acl) for acl in wanted])
        response = await at_any(self._cluster, wire.CREATE_ACLS, request, self._timeout_s)
        _require_one_each(call, wanted, response.results)
        return {
            acl: error_for(result.error_code, result.error_message)
            for acl, result in zip(wanted, response.results, strict=True)
        }

    async def describe_acls(self, acl_filter: AclFilter | None = None) -> list[Acl]:
        """Return the access control entries that the filter matches, sorted; without one, all of them (CL-157).

        Raises KafkaError: ClusterAuthorizationFailedError for a caller that may not list them, RequestTimedOutError.
        """
        call = "describe_acls"
        if acl_filter is not None and not isinstance(acl_filter, AclFilter):
            raise arguments.refusal(call, "acl_filter", acl_filter, "an AclFilter, or None", f"{call}({_FILTER})")
        request = DescribeAclsRequest(filter=_filter(call, acl_filter or AclFilter()))

        async def ask() -> DescribeAclsResponse:
            one_s = min(self._timeout_s, self._cluster.timeout_s)
            answer = await self._cluster.ask_any(wire.DESCRIBE_ACLS, request, one_s)
            if error := error_for(answer.error_code, answer.error_message):
                raise error
            return answer

        found = await until_answered(self._cluster, "DescribeAcls", self._timeout_s, ask)
        return sorted(map(_acl, found.acls))

    async def delete_acls(self, filters: Iterable[AclFilter]) -> dict[AclFilter, list[Acl] | KafkaError]:
        """Remove the access control entries that the filters match, all in one request (CL-157). Returns the removed
        entries of each filter, or its error.

        If a response is lost, the request is repeated: what the first attempt removed is then not in the result. Raises
        KafkaError; after a RequestTimedOutError the entries may or may not have been removed.
        """
        call = "delete_acls"
        given = arguments.items(call, filters, "AclFilter", AclFilter, f"{call}([{_FILTER}])")
        wanted = list(dict.fromkeys(given))
        request = DeleteAclsRequest(filters=[_filter(call, each) for each in wanted])
        response = await at_any(self._cluster, wire.DELETE_ACLS, request, self._timeout_s)
        _require_one_each(call, wanted, response.filter_results)
        return {
            each: error_for(result.error_code, result.error_message) or sorted(map(_acl, result.matching_acls))
            for each, result in zip(wanted, response.filter_results, strict=True)
        }


def _require_one_each(call: str, wanted: Sized, results: Sized) -> None:
    """Raise NetworkError unless a response has one result for each item of its request, since only their order says
    which result is whose."""
    if len(results) != len(wanted):
        raise NetworkError(f"the answer to {call} has {len(results)} results for {len(wanted)} items")


def _binding(call: str, acl: Acl) -> acl_pb2.AclBinding:
    """Return an entry for a request. Raises ValueError for a field of the wrong type (CL-89)."""
    for name in ("resource_name", "principal", "host"):
        arguments.text(call, f"Acl.{name}", getattr(acl, name))
    for name in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        arguments.whole(call, f"Acl.{name}", getattr(acl, name))
    return acl_pb2.AclBinding(**acl._asdict())


def _filter(call: str, wanted: AclFilter) -> acl_pb2.AclFilter:
    """Return a filter for a request. Raises ValueError for a field of the wrong type (CL-89)."""
    for name in ("resource_name", "principal", "host"):
        if (value := getattr(wanted, name)) is not None:
            arguments.text(call, f"AclFilter.{name}", value)
    for name in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        arguments.whole(call, f"AclFilter.{name}", getattr(wanted, name))
    return acl_pb2.AclFilter(**wanted._asdict())


def _acl(found: acl_pb2.AclBinding) -> Acl:
    """Return an entry of a response. A number that this version does not know stays a number."""
    return Acl(
        _known(ResourceType, found.resource_type),
        found.resource_name,
        _known(PatternType, found.resource_pattern_type),
        found.principal,
        found.host,
        _known(Operation, found.operation),
        _known(Permission, found.permission_type),
    )


def _known(kind: type[IntEnum], number: int) -> int:
    return kind(number) if number in {member.value for member in kind} else number
