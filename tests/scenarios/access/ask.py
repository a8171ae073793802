"""A question of the matrix: a valid request, the permissions that it needs according to the specification, and what the
response shows.

The expectations are written here and next to the requests, from the table of CM-61; `test_table.py` compares them with
the table. Nothing is taken from the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, NamedTuple

from kip932.acls import Operation, ResourceType
from tests.scenarios.access.stage import NAMES, Caller, Stage, error_name

T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
#: A name that stands for "on at least one name of this type".
ANY_NAME: Final = ""


class Right(NamedTuple):
    """A permission that a request may need. `name`: "" for any name of the type; None for the one that all requests
    use."""

    operation: Operation
    resource: ResourceType
    name: str | None = None

    @property
    def on(self) -> str:
        """The name of the resource."""
        return NAMES[self.resource] if self.name is None else self.name


class Shown(NamedTuple):
    """What a response shows: the short name of its first error, or another word, and the field that contains it."""

    what: str
    where: str = ""


PASSED: Final = Shown("NONE")


class Clause(NamedTuple):
    """One condition: at least one of these permissions. `without`: what the response shows otherwise."""

    rights: tuple[Right, ...]
    without: Shown
    #: The rule, if it is not in the row of the table.
    rule: str = ""


def need(operation: Operation, resource: ResourceType, what: str, where: str = "", name: str | None = None) -> Clause:
    """Return the clause that requires one permission."""
    return Clause((Right(operation, resource, name),), Shown(what, where))


class Ask:
    """One way to call an RPC. The clauses are in the order in which they are checked."""

    rpc: ClassVar[str]
    clauses: ClassVar[tuple[Clause, ...]]
    #: What the response shows when the caller has every permission needed.
    passed: ClassVar[Shown] = PASSED

    async def prepare(self, stage: Stage) -> None:
        """Create what the requests need, once."""

    async def before(self, stage: Stage, caller: Caller, number: int) -> None:
        """Create what the request of the caller with this number needs, while that caller may do everything."""

    async def request(self, stage: Stage, number: int) -> Any:
        """Return the request of the caller with this number."""
        raise NotImplementedError

    def shown(self, answer: Any) -> Shown:
        """Return what a response shows: by default its first error."""
        return first_error(answer)

    async def after(self, stage: Stage, number: int) -> None:
        """Undo what an allowed request has changed."""

    @property
    def resources(self) -> tuple[ResourceType, ...]:
        """The types of the resources in the clauses, in order."""
        found = (right.resource for clause in self.clauses for right in clause.rights)
        return tuple(dict.fromkeys(found))

    def name_of(self, resource: ResourceType) -> str:
        """Return the name of the resource of this type."""
        named = [right.on for clause in self.clauses for right in clause.rights if right.resource is resource]
        return next((name for name in named if name), NAMES[resource])


def errors(message: Any, where: str = "") -> Iterator[Shown]:
    """Yield the errors in a response, the outer ones first, each with the path of its field."""
    nested = []
    for field, value in message.ListFields():
        path = f"{where}.{field.name}" if where else field.name
        if field.name.endswith("error_code"):
            yield Shown(error_name(value), where if field.name == "error_code" else path)
        elif field.message_type is not None:
            nested += [(each, path) for each in (value if isinstance(value, Iterable) else (value,))]
    for each, path in nested:
        yield from errors(each, path)


def first_error(answer: Any) -> Shown:
    """Return the outermost error in a response; NONE if it has no error."""
    return next(errors(answer), PASSED)
