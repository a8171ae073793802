"""The options that name resources and callers, and the entries or filters that they stand for (CT-137)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple, TypeVar

import click

from kip932.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    refused_binding,
)
from kip932.ids import TOPIC_NAME_RULE, possible_topic_name
from sharegroups.cli.acls.naming import TEXT, Host, OperationName, Principal
from sharegroups.cli.output import UsageFailure

F = TypeVar("F", bound=Callable[..., Any])

_OPTION_OF: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.CLUSTER: "--cluster",
}
_RESOURCES: Final = "--topic, --group, --transactional-id or --cluster"
#: The operations that each shorthand allows, by type of resource.
_PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
#: A worker also reads the limits in its group's configs before it starts.
_WORKER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE_CONFIGS),
}
#: One who inspects: everything is shown but the contents of records, and nothing can be changed.
_OPERATOR: Final = {
    ResourceType.TOPIC: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.GROUP: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE,),
    ResourceType.CLUSTER: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
}
#: `--topic`: the topics that dead letters go back to, and from which the record of a letter without a copy is read.
_REDRIVE: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.WRITE, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.DESCRIBE_CONFIGS,),
}
_TABLES: Final[Mapping[str, Mapping[ResourceType, Sequence[Operation]]]] = {
    "producer": _PRODUCER,
    "consumer": _CONSUMER,
    "worker": _WORKER,
    "operator": _OPERATOR,
    "redrive": _REDRIVE,
}
#: What a shorthand allows on --dead-letter-topic. `dlq` recognises a dead-letter topic by its configs.
_LETTERS: Final[Mapping[str, Sequence[Operation]]] = {
    "worker": (Operation.WRITE,),
    "operator": (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "redrive": (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.DELETE),
}


class Resource(NamedTuple):
    """A resource, or with a pattern several. `name`: None for all of the type, in a filter."""

    type: ResourceType
    name: str | None


class Permitted(NamedTuple):
    """An operation on a resource, as in an entry or a filter."""

    resource: Resource
    pattern: PatternType
    operation: Operation


@dataclass(frozen=True, slots=True)
class Given:
    """The values of the options, by the names of their parameters. `pattern`: None without --resource-pattern-type."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False
    operations: Sequence[Operation] = ()
    pattern: str | None = None
    principals: Sequence[str] = ()
    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    producer: bool = False
    idempotent: bool = False
    consumer: bool = False
    worker: bool = False
    operator: bool = False
    redrive: bool = False
    dead_letter_topics: Sequence[str] = ()

    @property
    def resources(self) -> list[Resource]:
        """The resources named, without repetitions."""
        named = (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.CLUSTER, [CLUSTER_NAME] if self.cluster else []),
        )
        return list(dict.fromkeys(Resource(kind, name) for kind, names in named for name in names))

    @property
    def shorthands(self) -> list[str]:
        """The names of the shorthands given, without hyphens."""
        return [name for name in _TABLES if getattr(self, name)]


def named(kind: ResourceType, name: str) -> list[str]:
    """Return the words of a command line that name a resource."""
    return [_OPTION_OF[kind]] if kind is ResourceType.CLUSTER else [_OPTION_OF[kind], name]


def resource_options(*, with_all: bool) -> Callable[[F], F]:
    """Return a decorator that adds --topic, --group, --transactional-id and --cluster. `with_all`: `*` is explained."""
    more = ", * for all" if with_all else ""
    options = (
        click.option("--topic", "topics", multiple=True, type=TEXT, help=f"A topic{more}; repeatable."),
        click.option("--group", "groups", multiple=True, type=TEXT, help=f"A group{more}; repeatable."),
        click.option("--transactional-id", "transactional_ids", multiple=True, type=TEXT,
                     help=f"A transactional id{more}; repeatable."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
    )  # fmt: skip
    return _all_of(options)


def caller_options(*, in_filters: bool) -> Callable[[F], F]:
    """Return a decorator that adds the options for principals and hosts, and --operation."""
    principal, host = Principal(everyone=True), Host(any_host=True, any_text=in_filters)
    options = (
        click.option("--allow-principal", "allow_principals", multiple=True, type=principal,
                     help="User:NAME, or User:* for everyone, in entries that allow; repeatable."),
        click.option("--deny-principal", "deny_principals", multiple=True, type=principal,
                     help="The same in entries that deny; repeatable."),
        click.option("--allow-host", "allow_hosts", multiple=True, type=host,
                     help="Address that an allowed principal calls from, * for any; repeatable."),
        click.option("--deny-host", "deny_hosts", multiple=True, type=host,
                     help="Address that a denied principal calls from, * for any; repeatable."),
        click.option("--operation", "operations", multiple=True, type=OperationName(),
                     help="Read, Write, Describe, …; repeatable, in any case."),
    )  # fmt: skip
    either = click.option("--principal", "principals", multiple=True, type=principal,
                          help="The same in entries that allow or deny; repeatable.")  # fmt: skip
    return _all_of((*options, either) if in_filters else options)


def shorthand_options(function: F) -> F:
    """Add --producer, --consumer, --worker, --operator and --redrive with their companions."""
    options = (
        click.option("--producer", is_flag=True, help="What a producer needs: Write, Describe and Create on --topic, "
                     "Write and Describe on --transactional-id."),
        click.option("--idempotent", is_flag=True, help="With --producer: also IdempotentWrite on the cluster."),
        click.option("--consumer", is_flag=True, help="What a consumer needs: Read and Describe on --topic, Read on "
                     "--group."),
        click.option("--worker", is_flag=True, help="What a worker needs: as --consumer, and DescribeConfigs on "
                     "--group, for the group's limits."),
        click.option("--operator", is_flag=True, help="What is needed to inspect: Describe and DescribeConfigs on "
                     "--topic, --group and --cluster, Describe on --transactional-id."),
        click.option("--redrive", is_flag=True, help="What dlq redrive and purge need: Read, Write, Describe on "
                     "--topic, where letters go back to, DescribeConfigs on --group; and --dead-letter-topic."),
        click.option("--dead-letter-topic", "dead_letter_topics", multiple=True, type=TEXT, metavar="TOPIC",
                     help="With --worker: Write on this topic and AlterConfigs on --group, to name it as the group's. "
                     "With --operator: Read, Describe and DescribeConfigs on it, for dlq list and show; with --redrive "
                     "Delete, too. Repeatable."),
    )  # fmt: skip
    return _all_of(options)(function)


def pattern_option(*, in_filters: bool) -> Callable[[F], F]:
    """Return a decorator that adds --resource-pattern-type, with the values for entries or for filters."""
    words = ["literal", "prefixed", *(["any", "match"] if in_filters else [])]
    more = "; any: either; match: whatever applies to the name" if in_filters else ""
    return click.option(
        "--resource-pattern-type", "pattern", type=click.Choice(words, case_sensitive=False),
        help=f"literal: the names are whole, the default; prefixed: names begin so{more}.",
    )  # fmt: skip


def _all_of(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    def decorated(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


def entries(given: Given) -> list[Acl]:
    """Return the entries to add. Raises UsageFailure if any of them cannot be, before anything is sent."""
    permitted = _permitted(given, Operation.ALL)
    callers = [
        (permission, principal, host)
        for permission, principals, hosts in _sides(given)
        for principal, host in product(principals, hosts or [ANY_HOST])
    ]
    for option, hosts, principals in (
        ("allow", given.allow_hosts, given.allow_principals),
        ("deny", given.deny_hosts, given.deny_principals),
    ):
        if hosts and not principals:
            raise UsageFailure(f"--{option}-host is given without --{option}-principal; name the principal, or User:*")
    if not callers:
        raise UsageFailure("no principal is given; expected --allow-principal or --deny-principal")
    acls = [
        Acl(resource.type, resource.name or "", pattern, principal, host, operation, permission)
        for (resource, pattern, operation), (permission, principal, host) in product(permitted, callers)
    ]
    for acl in acls:
        if why := refused_binding(acl) or _misleading(acl):
            raise UsageFailure(why)
    return list(dict.fromkeys(acls))


def filters(given: Given) -> list[AclFilter]:
    """Return the filters for entries that exist: what is not given matches everything. Raises UsageFailure."""
    if given.pattern == "match" and any(resource.name == WILDCARD for resource in given.resources):
        raise UsageFailure(
            f"match means what applies to a name, and {WILDCARD!r} is none: it is how an entry for all names is "
            "written. For such entries leave out --resource-pattern-type; for those of every name leave out the "
            "resource"
        )
    anything: Sequence[str | None] = [None]
    callers = [
        (permission, principal, host)
        for permission, principals, hosts in _sides(given)
        if principals or hosts
        for principal, host in product(principals or anything, hosts or anything)
    ]
    callers += [(Permission.ANY, principal, None) for principal in given.principals]
    if given.resources or given.shorthands:
        permitted = _permitted(given, Operation.ANY)
    else:
        pattern = PatternType.ANY if given.pattern is None else PatternType[given.pattern.upper()]
        if pattern is PatternType.MATCH:
            raise UsageFailure(f"match means what applies to a name, and none is given; expected {_RESOURCES}")
        everything = Resource(ResourceType.ANY, None)
        permitted = [Permitted(everything, pattern, each) for each in given.operations or [Operation.ANY]]
    return [
        AclFilter(resource.type, resource.name, pattern, principal, host, operation, permission)
        for (resource, pattern, operation), (permission, principal, host) in product(
            permitted, callers or [(Permission.ANY, None, None)]
        )
    ]


def require_choice(given: Given) -> None:
    """Raise UsageFailure unless a resource, principal or host says which entries are meant."""
    callers = (given.principals, given.allow_principals, given.deny_principals, given.allow_hosts, given.deny_hosts)
    if not given.resources and not any(callers):
        raise UsageFailure(
            f"nothing says which entries; expected {_RESOURCES}, or --principal for all entries of a principal"
        )


def star_note(given: Given, *, any_found: bool) -> str:
    """Return the note about a resource `*` in a list or removal that may have meant more; "" if none is needed."""
    named = [resource.type for resource in given.resources if resource.name == WILDCARD]
    if not named or (any_found and given.pattern != "any"):
        return ""
    option = _OPTION_OF[named[0]]
    kind = option.removeprefix("--").replace("-", " ")
    return (
        f"Note: {option} '{WILDCARD}' means the entries that are written for all names, not those of every {kind}; "
        f"leave out {option} for these."
    )


def require_resource(given: Given) -> None:
    """Raise UsageFailure unless a resource is named."""
    if not given.resources:
        raise UsageFailure(f"no resource is given; expected {_RESOURCES}")


def _sides(given: Given) -> Iterator[tuple[Permission, Sequence[str], Sequence[str]]]:
    yield Permission.ALLOW, given.allow_principals, given.allow_hosts
    yield Permission.DENY, given.deny_principals, given.deny_hosts


def _permitted(given: Given, usual: Operation) -> list[Permitted]:
    """Return the operations on resources that the options name. `usual`: without --operation. Raises UsageFailure."""
    _check_companions(given)
    pattern = PatternType[(given.pattern or "literal").upper()]
    if not given.shorthands:
        require_resource(given)
        chosen = [(resource, each) for resource in given.resources for each in given.operations or [usual]]
    else:
        _check_shorthands(given)
        chosen = [
            (resource, operation)
            for name in given.shorthands
            for resource in given.resources
            for operation in _TABLES[name].get(resource.type, ())
        ]
        if given.worker and given.dead_letter_topics:
            # Naming a dead-letter topic changes a config of the group.
            groups = [resource for resource in given.resources if resource.type is ResourceType.GROUP]
            chosen += [(group, Operation.ALTER_CONFIGS) for group in groups]
    found = [
        Permitted(resource, PatternType.LITERAL if resource.type is ResourceType.CLUSTER else pattern, operation)
        for resource, operation in chosen
    ]
    if given.idempotent:
        cluster = Resource(ResourceType.CLUSTER, CLUSTER_NAME)
        found.append(Permitted(cluster, PatternType.LITERAL, Operation.IDEMPOTENT_WRITE))
    letters = [Resource(ResourceType.TOPIC, name) for name in given.dead_letter_topics]
    on_letters = [operation for name in given.shorthands for operation in _LETTERS.get(name, ())]
    found += [Permitted(topic, PatternType.LITERAL, operation) for topic in letters for operation in on_letters]
    return list(dict.fromkeys(found))


def _check_companions(given: Given) -> None:
    """Raise UsageFailure for an option given without the shorthand that it requires."""
    if given.idempotent and not given.producer:
        raise UsageFailure("--idempotent goes with --producer, which is not given")
    if given.dead_letter_topics and not _LETTERS.keys() & set(given.shorthands):
        options = ", ".join(f"--{name}" for name in _LETTERS)
        raise UsageFailure(f"--dead-letter-topic goes with one of {options}, but none is given")


def _check_shorthands(given: Given) -> None:
    """Raise UsageFailure for options that a shorthand excludes, or that it needs and are missing."""
    said = ", ".join(f"--{name}" for name in given.shorthands)
    for option, value in (
        ("operation", given.operations),
        ("deny-principal", given.deny_principals),
        ("deny-host", given.deny_hosts),
    ):
        if value:
            raise UsageFailure(f"--{option} does not go with {said}, which has operations and resources of its own")
    usable = {kind for name in given.shorthands for kind in _TABLES[name]}
    for kind in dict.fromkeys(resource.type for resource in given.resources):
        if kind not in usable:
            raise UsageFailure(f"{_OPTION_OF[kind]} does not go with {said}; give it in a command of its own")
    for option, values, needed_by in (
        ("topic", given.topics, ("producer", "consumer", "worker", "redrive")),
        ("group", given.groups, ("consumer", "worker")),
        ("dead-letter-topic", given.dead_letter_topics, ("redrive",)),
    ):
        if not values and set(needed_by) & set(given.shorthands):
            raise UsageFailure(f"{said} needs --{option}")
    if given.operator and not given.resources:
        raise UsageFailure(f"--operator needs {_RESOURCES}")


def _misleading(acl: Acl) -> str:
    """Return why an entry would have no effect, although the nodes accept it: its name looks like a pattern."""
    name, topic = acl.resource_name, acl.resource_type == ResourceType.TOPIC
    if acl.resource_pattern_type == PatternType.PREFIXED:
        if name == WILDCARD:
            return (
                f"prefixed {WILDCARD!r} means names that begin with that character; for all names leave out "
                "--resource-pattern-type"
            )
        return f"no topic's name begins with {name!r}: {TOPIC_NAME_RULE}" if topic and _never(name) else ""
    if not topic or name == WILDCARD or possible_topic_name(name):
        return ""
    start = name.rstrip(WILDCARD)
    resembles_prefix = start != name and possible_topic_name(start)
    hint = f"; for all that begin with {start!r}: --topic {start} --resource-pattern-type prefixed"
    return f"no topic can be named {name!r}: a name has {TOPIC_NAME_RULE}{hint if resembles_prefix else ''}"


def _never(prefix: str) -> bool:
    """Return whether no topic's name can begin so."""
    return not possible_topic_name(prefix) and prefix not in {".", ".."}
