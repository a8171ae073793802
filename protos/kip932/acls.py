"""Access control entries: their numbers, which are Kafka's, and the decision that they lead to (CM-61). Pure.

A node decides with `AclRules` for each request; `sharegroups acls explain` decides with the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

#: The principal of a caller that is not known: it has no certificate.
ANONYMOUS: Final = "User:ANONYMOUS"
PRINCIPAL_TYPE: Final = "User"
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"
#: As the name of a resource with a literal pattern: all resources of the type.
WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """What an entry is about. ANY: in a filter only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class PatternType(IntEnum):
    """How an entry's resource name is compared. ANY and MATCH: in a filter only; MATCH finds what applies to a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a caller does. ANY: in a filter only. ALL: every operation on the resource."""

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
    """Whether an entry denies or allows. ANY: in a filter only."""

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
        if self.resource_pattern_type == PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in {name, WILDCARD}

    @property
    def allows(self) -> bool:
        """Whether the entry allows, and does not deny."""
        return self.permission_type == Permission.ALLOW

    @property
    def text(self) -> str:
        """The entry as one line for people."""
        pattern = "prefix " if self.resource_pattern_type == PatternType.PREFIXED else ""
        return (
            f"{_name(Permission, self.permission_type)} {self.principal} from {self.host}: "
            f"{_name(Operation, self.operation)} on {_name(ResourceType, self.resource_type)} "
            f"{pattern}{self.resource_name!r}"
        )


class AclFilter(NamedTuple):
    """Which entries are meant: ANY, and None, match everything."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    resource_pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission_type: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether the entry is one of those meant."""
        return (
            self.resource_type in {ResourceType.ANY, acl.resource_type}
            and self._matches_name(acl)
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self.operation in {Operation.ANY, acl.operation}
            and self.permission_type in {Permission.ANY, acl.permission_type}
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.resource_pattern_type == PatternType.MATCH:
            return self.resource_name is None or acl.covers(self.resource_name)
        if self.resource_pattern_type not in {PatternType.ANY, acl.resource_pattern_type}:
            return False
        return self.resource_name in {None, acl.resource_name}


class Decision(NamedTuple):
    """Whether an operation is allowed. `rule`: the entry that decided; None when none allows it, or for a super
    user."""

    allowed: bool
    rule: Acl | None = None
    super_user: bool = False


class AclRules:
    """All entries of a cluster, for decisions. Nothing is allowed to a principal without an entry, except to
    `super_users`, whom no entry affects."""

    def __init__(self, acls: Iterable[Acl], super_users: Iterable[str] = ()) -> None:
        self.super_users: Final = frozenset(super_users)
        self._named: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        for acl in sorted(acls):
            prefixed = acl.resource_pattern_type == PatternType.PREFIXED
            kept = self._prefixed if prefixed else self._named
            kept.setdefault((acl.resource_type, acl.resource_name), []).append(acl)
        self._lengths = sorted({len(prefix) for _, prefix in self._prefixed})

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Return whether `principal`, calling from `host`, may do `operation` on the resource.

        An entry that denies it decides before all that allow it, whichever pattern is narrower. A permission of READ,
        WRITE, DELETE or ALTER includes DESCRIBE, one of ALTER_CONFIGS includes DESCRIBE_CONFIGS; a denial includes
        nothing (GC-148).
        """
        if principal in self.super_users:
            return Decision(True, super_user=True)
        enough = {operation, Operation.ALL} | IMPLIED_BY.get(operation, frozenset())
        allowing: Acl | None = None
        for acl in self._about(resource_type, name):
            if acl.principal not in {principal, ANY_PRINCIPAL} or acl.host not in {host, ANY_HOST}:
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
        mine = [
            acl
            for acl in self._of_type(resource_type)
            if acl.principal in {principal, ANY_PRINCIPAL} and acl.host in {host, ANY_HOST}
        ]
        denied = [
            acl
            for acl in mine
            if acl.permission_type != Permission.ALLOW and acl.operation in {operation, Operation.ALL}
        ]
        enough = {operation, Operation.ALL} | IMPLIED_BY.get(operation, frozenset())
        return any(
            acl.permission_type == Permission.ALLOW
            and acl.operation in enough
            and not any(_covers_all_of(denial, acl) for denial in denied)
            for acl in mine
        )

    def _about(self, resource_type: int, name: str) -> Iterator[Acl]:
        yield from self._named.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._named.get((resource_type, WILDCARD), ())
        for length in self._lengths:
            if length > len(name):
                return
            yield from self._prefixed.get((resource_type, name[:length]), ())

    def _of_type(self, resource_type: int) -> Iterator[Acl]:
        for kept in (self._named, self._prefixed):
            for (found, _), acls in kept.items():
                if found == resource_type:
                    yield from acls


def _covers_all_of(denial: Acl, allowed: Acl) -> bool:
    """Return whether a denial applies to all names to which the other entry applies."""
    if denial.resource_pattern_type == PatternType.PREFIXED:
        if allowed.resource_pattern_type == PatternType.LITERAL and allowed.resource_name == WILDCARD:
            return False
        return allowed.resource_name.startswith(denial.resource_name)
    if denial.resource_name == WILDCARD:
        return True
    literal = allowed.resource_pattern_type == PatternType.LITERAL
    return literal and denial.resource_name == allowed.resource_name


_E = TypeVar("_E", bound=IntEnum)


def _name(kind: type[_E], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


def refused_binding(acl: Acl) -> str:
    """Return why an entry cannot be added, as a sentence; "" when it can."""
    for kind, number, what in (
        (ResourceType, acl.resource_type, "resource type"),
        (PatternType, acl.resource_pattern_type, "pattern type"),
        (Operation, acl.operation, "operation"),
        (Permission, acl.permission_type, "permission type"),
    ):
        usable = [member for member in kind if member.name not in {"ANY", "MATCH"}]
        if number not in usable:
            expected = ", ".join(f"{member.value} {member.name}" for member in usable)
            return f"{what} {number} is not known; expected one of {expected}"
    resource_type, operation = ResourceType(acl.resource_type), Operation(acl.operation)
    if operation not in {Operation.ALL, *OPERATIONS[resource_type]}:
        return f"{operation.name} is no operation on {resource_type.name}; expected one of " + ", ".join(
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
    if not acl.host or len(acl.host) > NAME_MAX:
        return f"the host is {acl.host[:NAME_MAX]!r}; expected an address, or * for any"
    return ""


#: How many characters a resource name, principal or host of an entry may have.
NAME_MAX: Final = 290
