"""The part of `sharegroups configs` that is about quotas of users and client ids (CT-139)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

from kip932.errors import InvalidRequestError
from kip932.printable import printable
from kip932.quotas import CLIENT_ID, DEFAULT, USER, QuotaEntity, entity_of, quota_text, refused_key
from sharegroups.admin import Admin
from sharegroups.admin_values import OP_DELETE, AlterConfig
from sharegroups.cli.output import UsageFailure, print_json, print_stderr

#: Kafka's words for the types of entities, and the part of an entity that each names.
QUOTA_TYPES: Final[Mapping[str, str]] = {"users": USER, "clients": CLIENT_ID}
_BOTH_WAYS: Final = (
    "give --user NAME or --user-defaults, and --client NAME or --client-defaults, which also go together"
)


class QuotaParts(dict[str, str | None]):
    """The parts of an entity, as the options name them: type → name, "" for the default, None for all."""

    @property
    def entity(self) -> QuotaEntity:
        """The entity. Raises UsageFailure unless each part has a name or is the default."""
        if None in self.values():
            raise UsageFailure(f"say which {' and which '.join(self)}; {_BOTH_WAYS}")
        found = entity_of((kind, name or None) for kind, name in self.items())
        if isinstance(found, str):
            raise UsageFailure(found)
        return found

    def match(self, entity: QuotaEntity) -> bool:
        """Return whether an entity has exactly these parts."""
        names = dict(entity.parts)
        return names.keys() == self.keys() and all(
            wanted is None or (names[kind] or DEFAULT) == wanted for kind, wanted in self.items()
        )


def quota_parts(
    types: Sequence[str],
    names: Sequence[str],
    defaults: int,
    *,
    user: str | None,
    user_defaults: bool,
    client: str | None,
    client_defaults: bool,
) -> QuotaParts:
    """Return the parts that the options name; empty if they are about something else. Raises UsageFailure."""
    parts = QuotaParts()
    for kind, name, is_default in ((USER, user, user_defaults), (CLIENT_ID, client, client_defaults)):
        if name is not None and is_default:
            raise UsageFailure(f"a {kind} has a name or is the default, not both; {_BOTH_WAYS}")
        if name is not None or is_default:
            parts[kind] = name or DEFAULT
    wanted = [QUOTA_TYPES[each] for each in types if each in QUOTA_TYPES]
    if not wanted:
        return parts
    if parts or len(wanted) != len(types) or len(set(wanted)) != len(wanted):
        raise UsageFailure(f"say once whose quotas are meant; {_BOTH_WAYS}")
    if (names and defaults) or (names and len(names) != len(wanted)) or (defaults and defaults != len(wanted)):
        raise UsageFailure(f"each --entity-type needs its own --entity-name; for a name and a default {_BOTH_WAYS}")
    texts: Sequence[str | None] = names or [DEFAULT if defaults else None] * len(wanted)
    parts.update(zip(wanted, texts, strict=True))
    return parts


def describe_quotas(admin: Admin, parts: QuotaParts, output: str) -> None:
    """Print the quotas of the entities that the parts name. Raises KafkaError."""
    found = {entity: values for entity, values in admin.describe_client_quotas().items() if parts.match(entity)}
    if output == "json":
        print_json(
            [{"user": entity.user, "client_id": entity.client_id, "quotas": values} for entity, values in found.items()]
        )
        return
    if not found:
        print_stderr(f"Note: no quota is set for {_wanted(parts)}.")
    for entity, values in found.items():
        listed = ", ".join(f"{printable(key)}={quota_text(value)}" for key, value in sorted(values.items()))
        click.echo(f"Quota configs for {printable(entity.text)} are {listed}")


def alter_quotas(admin: Admin, parts: QuotaParts, changes: Sequence[AlterConfig], output: str) -> None:
    """Set and delete quotas of one entity: all of the changes, or none. Raises KafkaError, UsageFailure."""
    entity = parts.entity
    wanted = {change.name: _value(change) for change in changes}
    removed = [name for name, value in wanted.items() if value is None]
    before = admin.describe_client_quotas().get(entity, {}) if removed else {}
    error = admin.alter_client_quotas({entity: wanted})[entity]
    if error is not None:
        raise error
    for name in removed:
        if name not in before:
            print_stderr(f"Note: {name} was not set for {printable(entity.text)}; there was nothing to delete.")
    if output == "json":
        print_json({"user": entity.user, "client_id": entity.client_id, "changed": list(wanted)})
    else:
        click.echo(f"Completed updating config for {printable(entity.text)}.")


def _value(change: AlterConfig) -> float | None:
    """Return the value that a change sets; None to delete. Raises InvalidRequestError for a wrong name, UsageFailure
    for a value that is not a number."""
    if refused := refused_key(change.name):
        raise InvalidRequestError(refused)
    if change.operation == OP_DELETE:
        return None
    try:
        return float(str(change.value))
    except ValueError:
        raise UsageFailure(
            f"{change.name}={change.value} is not a number; expected one without a unit, such as {change.name}=1048576"
        ) from None


def _wanted(parts: QuotaParts) -> str:
    return " and ".join(
        f"any {kind}" if name is None else f"the default {kind}" if name == DEFAULT else f"{kind} {name!r}"
        for kind, name in parts.items()
    )
