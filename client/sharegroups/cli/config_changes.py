"""Parses changes of configs, and checks before sending them that every name exists (CT-91)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kip932.errors import InvalidConfigError
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.admin_values import OP_DELETE, AlterConfig, ConfigEntry, ConfigResource
from sharegroups.cli.output import UsageFailure, print_stderr

#: The noun for each resource type, which is also the name of its option.
NOUNS: Final[Mapping[int, str]] = {RESOURCE_TOPIC: "topic", RESOURCE_BROKER: "broker", RESOURCE_GROUP: "group"}
#: For each resource type, the source number of a value that was set on the resource itself.
OWN_SOURCES: Final[Mapping[int, int]] = {RESOURCE_TOPIC: 1, RESOURCE_BROKER: 2, RESOURCE_GROUP: 8}
DEFAULT_BROKER_SOURCE: Final = 3
#: A comma outside square brackets.
_COMMA: Final = re.compile(r",(?=[^\]]*(?:\[|$))")


def own_source(resource: ConfigResource) -> int:
    """Return the source number of a value that is set on the resource itself."""
    if resource == ConfigResource.broker():
        return DEFAULT_BROKER_SOURCE
    return OWN_SOURCES[resource.type]


def name_of(resource: ConfigResource) -> str:
    """Return the resource's name for messages, such as `group 'g'`."""
    if resource == ConfigResource.broker():
        return "the default of all brokers"
    return f"{NOUNS[resource.type]} {resource.name!r}"


def listed(texts: Iterable[str]) -> list[str]:
    """Return the items of comma-separated lists; a comma inside square brackets does not separate."""
    return [part.strip() for text in texts for part in _COMMA.split(text) if part.strip()]


def changes_of(added: Iterable[str], deleted: Iterable[str]) -> list[AlterConfig]:
    """Return the changes: `name=value` texts to set, and names to delete. Raises UsageFailure."""
    changes: list[AlterConfig] = []
    for text in added:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise UsageFailure(f"{text!r} is not name=value, or name=[value,value] for a value with commas")
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        changes.append(AlterConfig(name, value))
    for name in deleted:
        if "=" in name:
            raise UsageFailure(f"{name!r} has a value; to delete a config give its name alone")
        changes.append(AlterConfig(name, operation=OP_DELETE))
    names = [change.name for change in changes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageFailure(f"given more than once: {', '.join(twice)}; give each config one time")
    return changes


def change(admin: Admin, resource: ConfigResource, changes: Sequence[AlterConfig], *, check_only: bool = False) -> None:
    """Make all of the changes or none; print a note if a config to delete is not set. Raises KafkaError.

    The names are checked here, since the services ignore a deletion of a name that does not exist (GC-136).
    """
    known = admin.describe_configs([resource])[resource]
    if not isinstance(known, Mapping):
        raise known
    _require_known(resource, [change.name for change in changes], known)
    error = admin.incremental_alter_configs({resource: changes}, validate_only=check_only)[resource]
    if error is not None:
        raise error
    if not check_only:
        for each in changes:
            if each.operation == OP_DELETE and known[each.name].source != own_source(resource):
                print_stderr(f"Note: {each.name} was not set for {name_of(resource)}; there was nothing to delete.")


def _require_known(resource: ConfigResource, names: Iterable[str], known: Mapping[str, ConfigEntry]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        option = f"--{NOUNS[resource.type]} {resource.name}" if resource.name else "--broker-defaults"
        faults = " ".join(f"{name_of(resource)} has no config {name!r}.{did_you_mean(name, known)}" for name in unknown)
        raise InvalidConfigError(
            f"{faults} Nothing was changed. All names: sharegroups configs describe {option} --all"
        )
