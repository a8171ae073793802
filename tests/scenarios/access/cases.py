"""The callers of one question: the ACL entries that each has, and what the response must show."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from kip932.acls import OPERATIONS, Acl, Operation, PatternType, Permission, ResourceType
from tests.scenarios.access.ask import ANY_NAME, Ask, C, Right, Shown
from tests.scenarios.access.stage import ADMIN, acl, denial

#: Names by which permission on "any topic" is decided; the requests name one of them.
_SOME_NAMES: Final = ("topic-t", "topic-t-", "top", "other", "*special")
#: GC-148 (a): which permissions include another one.
_INCLUDED: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Case(NamedTuple):
    """One caller: its label, host and entries; `principal` is a super user, or a user of this case alone."""

    label: str
    principal: str
    host: str
    entries: tuple[Acl, ...]


def expected(ask: Ask, case: Case) -> Shown:
    """Return what the response must show: the refusal of the first clause that is not met."""
    for clause in ask.clauses:
        if not any(permitted(case, right) for right in clause.rights):
            return clause.without
    return ask.passed


def permitted(case: Case, right: Right) -> bool:
    """Decide by GC-148, implemented a second time, as naively as possible."""
    if case.principal == ADMIN:
        return True
    names = _SOME_NAMES if right.name == ANY_NAME else (right.on,)
    return any(_permitted_on(case, right, name) for name in names)


def _permitted_on(case: Case, right: Right, name: str) -> bool:
    mine = [
        entry
        for entry in case.entries
        if entry.principal in (case.principal, "User:*")
        and entry.host in (case.host, "*")
        and entry.resource_type == right.resource
        and _meant(entry, name)
    ]
    denied = {entry.operation for entry in mine if entry.permission_type == Permission.DENY}
    allowed = {entry.operation for entry in mine if entry.permission_type == Permission.ALLOW}
    if denied & {right.operation, Operation.ALL}:
        return False
    return bool(allowed & ({right.operation, Operation.ALL} | _INCLUDED.get(right.operation, set())))


def _meant(entry: Acl, name: str) -> bool:
    if entry.resource_pattern_type == PatternType.PREFIXED:
        return name[: len(entry.resource_name)] == entry.resource_name
    return entry.resource_name in ("*", name)


def cases(ask: Ask) -> list[Case]:
    """Return all cases of a question, each with a principal and a host of its own."""
    found = []
    for number, (label, entries) in enumerate(_entries(ask)):
        me, here = f"User:u{number}", f"h{number}"
        mine = tuple(
            entry._replace(
                principal=me if entry.principal == "me" else entry.principal,
                host=here if entry.host == "here" else entry.host,
            )
            for entry in entries
        )
        found.append(Case(label, me, here, mine))
    everything = tuple(
        denial(ADMIN, Operation.ALL, resource, _all_of(resource)) for resource in ResourceType if resource > 1
    )
    return [
        *found,
        Case("a super user", ADMIN, "h-admin", ()),
        Case("a super user, denied", ADMIN, "h-deny", everything),
    ]


def _all_of(resource: ResourceType) -> str:
    return "kafka-cluster" if resource is C else "*"


def _entries(ask: Ask) -> Iterator[tuple[str, tuple[Acl, ...]]]:
    yield "no entry", ()
    singles = [(resource, operation) for resource in OPERATIONS for operation in (*OPERATIONS[resource], Operation.ALL)]
    for resource, operation in singles:
        yield f"{operation.name} on {resource.name}", (_on(ask, operation, resource),)
    for one, two in itertools.combinations(ask.resources, 2):
        for first, second in itertools.product((*OPERATIONS[one], Operation.ALL), (*OPERATIONS[two], Operation.ALL)):
            yield (
                f"{first.name} on {one.name}, {second.name} on {two.name}",
                (_on(ask, first, one), _on(ask, second, two)),
            )
    for rights in itertools.product(*(clause.rights for clause in ask.clauses)):
        yield from _around(ask, tuple(dict.fromkeys(rights)))


def _on(ask: Ask, operation: Operation, resource: ResourceType) -> Acl:
    return acl("me", operation, resource, ask.name_of(resource))


def _around(ask: Ask, rights: tuple[Right, ...]) -> Iterator[tuple[str, tuple[Acl, ...]]]:
    """Yield variations of sufficient entries: other patterns, hosts and principals, and denials."""
    enough = tuple(_on(ask, right.operation, right.resource) for right in rights)
    words = ", ".join(f"{right.operation.name} on {right.resource.name}" for right in rights)
    yield f"exactly {words}", enough
    yield f"{words} for everyone on this host", tuple(each._replace(principal="User:*", host="here") for each in enough)
    yield f"{words} for this host", tuple(each._replace(host="here") for each in enough)
    yield f"{words} for another host", tuple(each._replace(host="elsewhere") for each in enough)
    yield f"{words} for another principal", tuple(each._replace(principal="User:other") for each in enough)
    for number, right in enumerate(rights):
        rest = enough[:number] + enough[number + 1 :]
        yield from _patterns(f"{words}; {right.resource.name}", rest, enough[number])
        yield from _denials(f"{words}; {right.resource.name}", enough, enough[number])


def _patterns(label: str, rest: tuple[Acl, ...], one: Acl) -> Iterator[tuple[str, tuple[Acl, ...]]]:
    yield f"{label} missing", rest
    if one.resource_type == C:
        return
    prefixed = one._replace(resource_pattern_type=PatternType.PREFIXED)
    start = one.resource_name[:3]
    yield f"{label} by prefix", (*rest, prefixed._replace(resource_name=start))
    yield f"{label} by the whole name as prefix", (*rest, prefixed)
    yield f"{label} by a longer prefix", (*rest, prefixed._replace(resource_name=one.resource_name + "-"))
    yield f"{label} by a wildcard", (*rest, one._replace(resource_name="*"))
    yield f"{label} by the prefix *", (*rest, prefixed._replace(resource_name="*"))
    yield f"{label} by a literal that is only a prefix", (*rest, one._replace(resource_name=start))


def _denials(label: str, enough: tuple[Acl, ...], one: Acl) -> Iterator[tuple[str, tuple[Acl, ...]]]:
    denied = one._replace(permission_type=Permission.DENY)
    ways = {
        "denied": denied,
        "denied to everyone on this host": denied._replace(principal="User:*", host="here"),
        "denied on another host": denied._replace(host="elsewhere"),
        "denied to another": denied._replace(principal="User:other"),
        "ALL denied": denied._replace(operation=Operation.ALL),
    }
    if one.resource_type != C:
        prefixed = denied._replace(resource_pattern_type=PatternType.PREFIXED)
        ways |= {
            "denied by a wildcard": denied._replace(resource_name="*"),
            "denied by prefix": prefixed._replace(resource_name=one.resource_name[:2]),
            "another name denied": denied._replace(resource_name="other"),
        }
    for word, entry in ways.items():
        yield f"{label} {word}", (*enough, entry)
    everything = one._replace(operation=Operation.ALL)
    yield f"{label} denied over ALL", (*enough, everything, denied)
    for operation in OPERATIONS[ResourceType(one.resource_type)]:
        if operation != one.operation:
            yield f"{label}; {operation.name} denied", (*enough, denied._replace(operation=operation))


def of_all(found: Collection[Case]) -> tuple[Acl, ...]:
    """Return the entries of all cases."""
    return tuple(dict.fromkeys(entry for case in found for entry in case.entries))
