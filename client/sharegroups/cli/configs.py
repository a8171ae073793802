"""`sharegroups configs`: describes and changes configs of topics, groups and nodes, and quotas of users and client ids,
as kafka-configs.sh does (CT-35, CT-139)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, Final, TypeVar

import click

from kip932.errors import GroupIdNotFoundError, KafkaError, UnknownTopicOrPartitionError
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import OP_DELETE, AlterConfig, ConfigEntry, ConfigResource, ListGroupsResult
from sharegroups.cli.client_quotas import QUOTA_TYPES, QuotaParts, alter_quotas, describe_quotas, quota_parts
from sharegroups.cli.config_changes import NOUNS, change, changes_of, listed, name_of, own_source
from sharegroups.cli.kafka_layout import KafkaLayout
from sharegroups.cli.output import (
    FILE,
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    is_complete,
    lines_of,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin

F = TypeVar("F", bound=Callable[..., Any])
_TYPES: Final = {
    "topics": RESOURCE_TOPIC,
    "groups": RESOURCE_GROUP,
    "brokers": RESOURCE_BROKER,
    "nodes": RESOURCE_BROKER,
}
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_WHOSE: Final = "--group G, --topic T, --broker ID, --user U, --client C, or --entity-type with --entity-name"
#: Printed instead of a value that the services keep secret; Kafka prints null, as for a missing value.
_HIDDEN: Final = "(hidden)"
_DLQ_NAME: Final = "errors.deadletterqueue.topic.name"
_DLQ_ENABLED: Final = "errors.deadletterqueue.group.enable"
_AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
Described = Mapping[ConfigResource, Mapping[str, ConfigEntry]]


class _Kafkas(KafkaLayout):
    """`--describe` and `--alter`."""

    actions = ("describe", "alter")


@click.group(cls=_Kafkas)
def configs() -> None:
    """Show and change configs of topics, groups and nodes, and quotas of users and client ids, while they are in use.

    A value set on a group or topic overrides the cluster's. Kafka's options work too:
    sharegroups configs --describe --entity-type groups --entity-name workers.
    """


def _entity_options(function: F) -> F:
    options = (
        click.option("--entity-type", "entity_types", multiple=True, type=click.Choice([*_TYPES, *QUOTA_TYPES]),
                     help="With --entity-name: what it names; users and clients go together."),
        click.option("--entity-name", "entity_names", multiple=True, type=NAME,
                     help="The topic, the group, the id of the node, the user, or the client id."),
        click.option("--entity-default", "entity_defaults", count=True,
                     help="With --entity-type brokers, users or clients: their default."),
        click.option("--topic", type=NAME, help="A topic."),
        click.option("--group", type=NAME, help="A group; it need not exist yet."),
        click.option("--broker", "--node", "broker", type=NAME, help="The id of a node."),
        click.option("--broker-defaults", is_flag=True, help="The default of all nodes."),
        click.option("--user", type=NAME, help="A user, to limit its clients together; without User:."),
        click.option("--user-defaults", is_flag=True, help="Each user without a quota of its own."),
        click.option("--client", type=NAME, help="A client id; with --user: of that user."),
        click.option("--client-defaults", is_flag=True, help="Each client id without a quota of its own."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@configs.command()
@click.option("--all", "every", is_flag=True, help="Also what was not set on it: all names with the values in force.")
@_entity_options
@connection_options
@output_option
def describe(*, every: bool, bootstrap_server: str, command_config: Path | None, output: str, **entity: Any) -> None:
    """Show what is set on a topic, a group or a node; without a name, on all of the type.

    Each line has the effective value, and the values from all places that it may come from, the effective one first.
    Groups that have configs but do not exist yet are shown only if they are named, since no service lists them.
    """
    kind, name = _entity(**entity)
    given = settings(bootstrap_server, command_config)
    if isinstance(kind, QuotaParts):
        with failures("Describing quotas"), open_reachable_admin(given) as admin:
            describe_quotas(admin, kind, output)
        return
    with failures("Describing configs"), open_reachable_admin(given) as admin:
        names, groups_listed = _all_names(admin, kind) if name is None else ([name], ListGroupsResult(()))
        resources = [ConfigResource(kind, each) for each in names]
        found = admin.describe_configs(resources) if resources else {}
        shown: dict[ConfigResource, Mapping[str, ConfigEntry]] = {}
        for resource in resources:
            entries = found[resource]
            if not isinstance(entries, KafkaError):
                shown[resource] = entries if every else _set_on_itself(resource, entries)
        absent = [resource for resource, entries in shown.items() if not entries and _is_absent(admin, resource)]
    if output == "json":
        print_json([_document(resource, entries) for resource, entries in shown.items()])
    else:
        _print(shown, absent, every)
    errors = {resource: entries for resource, entries in found.items() if isinstance(entries, KafkaError)}
    for resource, error in errors.items():
        print_stderr(f"Error: {NOUNS[resource.type]} {resource.name}: {error.name}: {error.message}")
    finish(is_complete(groups_listed) and not errors)


@configs.command()
@click.option("--add-config", multiple=True, metavar="NAME=VALUE,…",
              help="Configs to set; [value,value] for a value with commas; repeatable.")  # fmt: skip
@click.option("--add-config-file", type=FILE, help="File with configs to set, one name=value per line.")
@click.option("--delete-config", multiple=True, metavar="NAME,…",
              help="Configs to delete, so that the default is in force again; repeatable.")  # fmt: skip
@_entity_options
@connection_options
@output_option
def alter(
    *,
    add_config: tuple[str, ...],
    add_config_file: Path | None,
    delete_config: tuple[str, ...],
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
    **entity: Any,
) -> None:
    """Set and delete configs of a topic, a group or a node. If any change is invalid, none is made.

    An unknown config name is refused, even in a deletion. A group need not exist yet.
    """
    kind, name = _entity(**entity)
    changes = changes_of([*lines_of(add_config_file), *listed(add_config)], listed(delete_config))
    if not changes:
        raise UsageFailure("nothing to change; give --add-config, --add-config-file or --delete-config")
    given = settings(bootstrap_server, command_config)
    if isinstance(kind, QuotaParts):
        whose = kind.entity.text
        with failures(f"Altering quotas of {printable(whose)}"), open_reachable_admin(given) as admin:
            alter_quotas(admin, kind, changes, output)
        return
    noun = NOUNS[kind]
    if name is None:
        raise UsageFailure(f"An entity name must be specified with alter of {noun}s; give --{noun} or --entity-name")
    resource = ConfigResource(kind, name)
    with failures(f"Altering configs of {name_of(resource)}"), open_reachable_admin(given) as admin:
        change(admin, resource, changes)
        with suppress(KafkaError):  # the change was made; only the note is missing
            if _is_absent(admin, resource):
                print_stderr(f"Note: group {name!r} does not exist yet; it has these configs when it begins.")
            if note := _dead_letter_note(admin, resource, changes):
                print_stderr(note)
    if output == "json":
        print_json({"type": noun, "name": name, "changed": [each.name for each in changes]})
    else:
        what = f"config for {noun} {printable(name)}" if name else "default config for brokers in the cluster"
        click.echo(f"Completed updating {what}.")


def _entity(
    *,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_defaults: int,
    topic: str | None,
    group: str | None,
    broker: str | None,
    broker_defaults: bool,
    **quotas: Any,
) -> tuple[int | QuotaParts, str | None]:
    """Return the resource type and name that the options give; the name is None for all resources of the type. For
    quotas it is the parts of the entity, and None. Raises UsageFailure."""
    short = ((RESOURCE_TOPIC, topic), (RESOURCE_GROUP, group), (RESOURCE_BROKER, broker))
    said: list[tuple[int | QuotaParts, str | None]] = [(kind, name) for kind, name in short if name is not None]
    if broker_defaults:
        said.append((RESOURCE_BROKER, ""))
    if parts := quota_parts(entity_types, entity_names, entity_defaults, **quotas):
        said.append((parts, None))
    if any(each in _TYPES for each in entity_types):
        kinds = [_TYPES[each] for each in entity_types]
        if entity_defaults and (entity_names or kinds != [RESOURCE_BROKER]):
            raise UsageFailure(
                "--entity-default goes with --entity-type brokers, users or clients, and without --entity-name"
            )
        if len(kinds) > 1 or len(entity_names) > 1:
            raise UsageFailure(f"say once whose configs are meant; give {_WHOSE}")
        said.append((kinds[0], "" if entity_defaults else next(iter(entity_names), None)))
    elif not entity_types and (entity_names or entity_defaults):
        raise UsageFailure("--entity-name and --entity-default need --entity-type")
    if len(said) != 1:
        raise UsageFailure(f"say once whose configs are meant; give {_WHOSE}")
    return said[0]


def _all_names(admin: Admin, kind: int) -> tuple[list[str], ListGroupsResult]:
    """Return all names of a type; for groups also the result that reports missing ones."""
    if kind == RESOURCE_TOPIC:
        return sorted(admin.list_topics()), ListGroupsResult(())
    if kind == RESOURCE_GROUP:
        listed = admin.list_groups(None, ["share"])
        return [group.group_id for group in listed.valid()], listed
    return ["", *(str(node.node_id) for node in admin.describe_cluster().nodes)], ListGroupsResult(())


def _set_on_itself(resource: ConfigResource, entries: Mapping[str, ConfigEntry]) -> dict[str, ConfigEntry]:
    return {name: entry for name, entry in entries.items() if entry.source == own_source(resource)}


def _is_absent(admin: Admin, resource: ConfigResource) -> bool:
    """Return whether the resource is a group that does not exist. Raises KafkaError."""
    if resource.type != RESOURCE_GROUP:
        return False
    found = admin.describe_share_groups([resource.name])[resource.name]
    if isinstance(found, KafkaError) and not isinstance(found, GroupIdNotFoundError):
        raise found
    return isinstance(found, GroupIdNotFoundError)


def _dead_letter_note(admin: Admin, resource: ConfigResource, changes: Sequence[AlterConfig]) -> str:
    """Return a note if these changes name a missing dead-letter topic that no node will create; otherwise "".

    The name is accepted anyway, as in Kafka, since the topic may be created later (PL-903, PL-906). Raises KafkaError.
    """
    named = [each.value for each in changes if each.name == _DLQ_NAME and each.operation != OP_DELETE and each.value]
    if resource.type != RESOURCE_GROUP or not named:
        return ""
    topic = str(named[0])
    wanted, cluster = ConfigResource.topic(topic), ConfigResource.broker()
    if not isinstance(admin.describe_configs([wanted])[wanted], UnknownTopicOrPartitionError):
        return ""
    defaults = admin.describe_configs([cluster])[cluster]
    if not isinstance(defaults, Exception) and _AUTO_CREATE in defaults and defaults[_AUTO_CREATE].value == "true":
        return ""
    return (
        f"Note: topic {topic!r} does not exist; until it does, dead letters of group {resource.name!r} wait. "
        f"Create it: sharegroups topics create {quote(topic)} --config {_DLQ_ENABLED}=true"
    )


def _print(shown: Described, absent: list[ConfigResource], every: bool) -> None:
    for resource, entries in shown.items():
        noun, name = NOUNS[resource.type], printable(resource.name)
        if resource in absent:
            click.echo(f"The group '{name}' doesn't exist and doesn't have dynamic config.")
            continue
        if resource == ConfigResource.broker():
            click.echo("Default configs for brokers in the cluster are:")
        else:
            click.echo(f"{'All' if every else 'Dynamic'} configs for {noun} {name} are:")
        for config, entry in sorted(entries.items()):
            places = ", ".join(
                f"{_source(source)}:{printable(at)}={_value(entry, value)}" for at, value, source in entry.synonyms
            )
            sensitive = str(entry.is_sensitive).lower()
            value = _value(entry, entry.value)
            click.echo(f"  {printable(config)}={value} sensitive={sensitive} synonyms={{{places}}}")


def _value(entry: ConfigEntry, value: str | None) -> str:
    return _HIDDEN if entry.is_sensitive else "null" if value is None else printable(value)


def _source(number: int) -> str:
    return _SOURCES.get(number, f"SOURCE_{number}")


def _document(resource: ConfigResource, entries: Mapping[str, ConfigEntry]) -> dict[str, object]:
    return {
        "type": NOUNS[resource.type],
        "name": resource.name,
        "configs": [
            {
                "name": name,
                "value": None if entry.is_sensitive else entry.value,
                "source": _source(entry.source),
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
                "synonyms": [
                    {"source": _source(source), "name": at, "value": None if entry.is_sensitive else value}
                    for at, value, source in entry.synonyms
                ],
            }
            for name, entry in sorted(entries.items())
        ],
    }
