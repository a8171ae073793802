"""Access control entries: their numbers, which are Kafka's, and the decision that they lead to (CM-61). Pure.

A node decides with `AclRules` for each request; `sharegroups acls explain` decides with the same code.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

#: The principal of an unauthenticated caller.
ANONYMOUS: Final = "User:ANONYMOUS"
PRINCIPAL_TYPE: Final = "User"
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"
#: Introduces the list of recently refused callers in a text (PL-820, GC-127).
REFUSED_LATELY: Final = "Refused in the last minute: "
#: The resource name that, with a literal pattern, means all resources of the type.
WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
#: How many characters a resource name, principal or host of an entry may have.
NAME_MAX: Final = 290
#: How many entries one request may create, and how many filters it may name (CM-62).
REQUEST_ACLS_MAX: Final = 1_000


class ResourceType(IntEnum):
    """The type of resource that an entry applies to. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class PatternType(IntEnum):
    """How an entry's resource name is compared. ANY and MATCH are for filters only; MATCH finds the entries that apply
    to a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operation that a caller wants to do. ANY is for filters only; ALL means every operation on the resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    """Whether an entry denies or allows. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
#: The operations that can be allowed or denied on each type of resource, besides ALL.
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
}  # fmt: skip

#: The operations whose permission includes a permission to do the key's operation on the same resource (GC-148).
IMPLIED_BY: Final = {
    _O.DESCRIBE: frozenset({_O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.ALTER_CONFIGS}),
}


# Plain numbers, for the code that runs for every entry: comparing with an enumeration member takes longer. ANY is the
# same in all four.
_ANY: Final = 1
_MATCH: Final = int(PatternType.MATCH)
_PREFIXED: Final = int(PatternType.PREFIXED)


class Acl(NamedTuple):
    """An access control entry; the numbers are those of the enumerations above."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def covers(self, name: str) -> bool:
        """Return whether the entry applies to the resource of this name."""
        if self.resource_pattern_type == _PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)

    @property
    def allows(self) -> bool:
        """Whether the entry allows the operation rather than denying it."""
        return self.permission_type == Permission.ALLOW

    @property
    def text(self) -> str:
        """The entry as one human-readable line."""
        pattern = "prefix " if self.resource_pattern_type == PatternType.PREFIXED else ""
        return (
            f"{_name(Permission, self.permission_type)} {self.principal} from {self.host}: "
            f"{_name(Operation, self.operation)} on {_name(ResourceType, self.resource_type)} "
            f"{pattern}{self.resource_name!r}"
        )


class AclFilter(NamedTuple):
    """Selects entries: ANY and None match everything."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    resource_pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission_type: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects the entry."""
        # Tuples, because this runs for every entry of the cluster and every filter of a request; sets would take twice
        # as long.
        kind, _, _, principal, host, operation, permission = self
        return (
            kind in (_ANY, acl.resource_type)
            and operation in (_ANY, acl.operation)
            and permission in (_ANY, acl.permission_type)
            and principal in (None, acl.principal)
            and host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.resource_pattern_type == _MATCH:
            return self.resource_name is None or acl.covers(self.resource_name)
        if self.resource_pattern_type not in (_ANY, acl.resource_pattern_type):
            return False
        return self.resource_name in (None, acl.resource_name)


class Decision(NamedTuple):
    """Whether an operation is allowed. `rule`: the entry that decided; None when none allows it, or for a super
    user."""

    allowed: bool
    rule: Acl | None = None
    super_user: bool = False


class AclRules:
    """Decides by all entries of a cluster. Without an entry a principal is allowed nothing, except `super_users`, whom
    no entry affects."""

    def __init__(self, acls: Iterable[Acl], super_users: Iterable[str] = ()) -> None:
        self.super_users: Final = frozenset(super_users)
        self._named: dict[tuple[int, str, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str, str], list[Acl]] = {}
        # This runs in one step of a node's event loop, for up to 10,000 entries, so it builds only what decisions on
        # names need.
        for acl in acls:
            resource_type, name, pattern, principal, _, _, _ = acl
            kept = self._prefixed if pattern == _PREFIXED else self._named
            kept.setdefault((resource_type, principal, name), []).append(acl)
        for entries in (*self._named.values(), *self._prefixed.values()):
            if len(entries) > 1:
                entries.sort()
        self._by_principal: dict[tuple[int, str], list[Acl]] | None = None
        self._lengths = sorted({len(prefix) for _, _, prefix in self._prefixed})

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Return whether `principal`, calling from `host`, may do `operation` on the resource.

        An entry that denies the operation takes precedence over all that allow it, whichever pattern is narrower. A
        permission of READ, WRITE, DELETE or ALTER includes DESCRIBE, one of ALTER_CONFIGS includes DESCRIBE_CONFIGS; a
        denial includes nothing (GC-148).
        """
        if principal in self.super_users:
            return Decision(True, super_user=True)
        enough = {operation, Operation.ALL} | IMPLIED_BY.get(operation, frozenset())
        allowing: Acl | None = None
        for acl in self._about(principal, resource_type, name):
            if acl.host not in (host, ANY_HOST):
                continue
            if acl.permission_type == Permission.ALLOW:
                if allowing is None and acl.operation in enough:
                    allowing = acl
            elif acl.operation in {operation, Operation.ALL}:
                return Decision(False, acl)
        return Decision(allowing is not None, allowing)

    def allowed_on_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the operation is allowed on at least one name that a resource of the type could have: an entry
        allows it, and none denies it for all that this entry covers."""
        if principal in self.super_users:
            return True
        allowing, denying = self._on_any(principal, host, operation, resource_type)
        denied = _Covered(denying)
        return any(not denied.includes(acl) for acl in allowing)

    def denial_on_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> Acl | None:
        """Return an entry because of which the operation is allowed on no name, although others allow it; preferably
        one about this host alone. None if none allows it, or if it is allowed on some name."""
        allowing, denying = self._on_any(principal, host, operation, resource_type)
        denied = _Covered(denying)
        if not allowing or not all(denied.includes(acl) for acl in allowing):
            return None
        return min(denying, key=lambda acl: acl.host == ANY_HOST)

    def _on_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> tuple[list[Acl], list[Acl]]:
        """Return the entries that allow the operation on any names, and those that deny it."""
        mine = [
            acl
            for name in (principal, ANY_PRINCIPAL)
            for acl in self._of(resource_type, name)
            if acl.host in (host, ANY_HOST)
        ]
        enough = {operation, Operation.ALL} | IMPLIED_BY.get(operation, frozenset())
        return (
            [acl for acl in mine if acl.permission_type == Permission.ALLOW and acl.operation in enough],
            [acl for acl in mine if acl.permission_type != Permission.ALLOW and acl.operation in {operation, _O.ALL}],
        )

    def _of(self, resource_type: int, principal: str) -> list[Acl]:
        """Return the principal's entries for resources of the type."""
        if self._by_principal is None:
            self._by_principal = {}
            for (kind, whom, _), entries in (*self._named.items(), *self._prefixed.items()):
                self._by_principal.setdefault((kind, whom), []).extend(entries)
        return self._by_principal.get((resource_type, principal), [])

    def _about(self, principal: str, resource_type: int, name: str) -> Iterator[Acl]:
        """Yield the entries for the principal, then those for everyone, that apply to the resource."""
        for whom in (principal, ANY_PRINCIPAL):
            yield from self._named.get((resource_type, whom, name), ())
            yield from self._named.get((resource_type, whom, WILDCARD), ())
            for length in self._lengths:
                if length > len(name):
                    break
                yield from self._prefixed.get((resource_type, whom, name[:length]), ())


class _Covered:
    """The names that a set of entries for one resource type covers."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._names: set[str] = set()
        self._prefixes: set[str] = set()
        for acl in acls:
            kept = self._prefixes if acl.resource_pattern_type == PatternType.PREFIXED else self._names
            kept.add(acl.resource_name)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})

    def includes(self, acl: Acl) -> bool:
        """Return whether they include every name that `acl` covers."""
        name = acl.resource_name
        if WILDCARD in self._names:
            return True
        if acl.resource_pattern_type != PatternType.PREFIXED:
            if name == WILDCARD:
                return False
            if name in self._names:
                return True
        return any(name[:length] in self._prefixes for length in self._lengths if length <= len(name))


_E = TypeVar("_E", bound=IntEnum)


def _name(kind: type[_E], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


def _refused_numbers(entry: Acl | AclFilter, *, in_filter: bool) -> str:
    for kind, number, what in (
        (ResourceType, entry.resource_type, "resource type"),
        (PatternType, entry.resource_pattern_type, "pattern type"),
        (Operation, entry.operation, "operation"),
        (Permission, entry.permission_type, "permission type"),
    ):
        usable = [member for member in kind if in_filter or member.name not in {"ANY", "MATCH"}]
        if number not in usable:
            found = f"{what} {number} is not known" if number else f"the {what} is not set"
            return f"{found}; expected one of " + ", ".join(f"{member.value} {member.name}" for member in usable)
    return ""


def refused_filter(wanted: AclFilter) -> str:
    """Return the reason why a filter cannot be used, as a sentence; "" if it can. A number that is not set does not
    mean ANY: otherwise a filter left empty by mistake would remove all entries (CM-111)."""
    if refused := _refused_numbers(wanted, in_filter=True):
        return refused
    if wanted.resource_pattern_type == PatternType.MATCH and wanted.resource_name is None:
        return "pattern type 2 MATCH needs a resource name; give one, or use pattern type 1 ANY for all names"
    return ""


def refused_binding(acl: Acl) -> str:
    """Return the reason why an entry cannot be added, as a sentence; "" if it can."""
    if refused := _refused_numbers(acl, in_filter=False):
        return refused
    resource_type, operation = ResourceType(acl.resource_type), Operation(acl.operation)
    if operation not in {Operation.ALL, *OPERATIONS[resource_type]}:
        return f"{operation.name} is not an operation on {resource_type.name}; expected one of " + ", ".join(
            each.name for each in (Operation.ALL, *OPERATIONS[resource_type])
        )
    return _refused_name(acl, resource_type) or _refused_caller(acl)


def _refused_name(acl: Acl, resource_type: ResourceType) -> str:
    if not acl.resource_name:
        return "the resource name is empty; expected a name, a prefix, or * for all with a literal pattern"
    if len(acl.resource_name) > NAME_MAX:
        return f"the resource name has {len(acl.resource_name)} characters; at most {NAME_MAX} are allowed"
    if resource_type is ResourceType.CLUSTER and (
        acl.resource_name != CLUSTER_NAME or acl.resource_pattern_type != PatternType.LITERAL
    ):
        return f"the name of the resource CLUSTER is {acl.resource_name!r}; expected {CLUSTER_NAME}, literal"
    return ""


def _refused_caller(acl: Acl) -> str:
    kind, colon, name = acl.principal.partition(":")
    if kind != PRINCIPAL_TYPE or not colon or not name or len(acl.principal) > NAME_MAX:
        return f"the principal is {acl.principal[:NAME_MAX]!r}; expected User:NAME, or User:* for everyone"
    return _refused_host(acl.host)


def _refused_host(host: str) -> str:
    """Refuse a host that no connection's address can equal: its entry would never apply, so a denial would not deny."""
    if host == ANY_HOST:
        return ""
    try:
        address = ipaddress.ip_address("" if "%" in host else host)
    except ValueError:
        return f"the host is {host[:NAME_MAX]!r}; expected an IP address such as 10.0.0.7, or * for any"
    written = str(getattr(address, "ipv4_mapped", None) or address)
    return "" if written == host else f"the host is {host!r}; write it as {written}, as connections show it"
