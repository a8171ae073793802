"""The pages of the configs of topics, groups and nodes: shows them, and changes one
after showing the change (CT-169)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kip932.errors import KafkaError
from kip932.nearest_name import did_you_mean
from sharegroups.admin_values import OP_DELETE, OP_SET, AlterConfig, ConfigEntry, ConfigResource
from sharegroups.console.dead_letters import Audited
from sharegroups.console.visit import Page, RefusedError, Visit

#: What decided a config's value, by the number of its source.
SOURCES: Final = {
    1: "set on the topic", 2: "set on the node", 3: "set on all nodes", 4: "the node's settings", 5: "default",
    8: "set on the group",
}  # fmt: skip
VALUE_MAX: Final = 10_000
_KINDS: Final = {
    "topic": ConfigResource.topic, "group": ConfigResource.group, "node": ConfigResource.broker,
}  # fmt: skip


def _resource(visit: Visit) -> tuple[str, ConfigResource]:
    for kind, make in _KINDS.items():
        if visit.text(kind):
            return kind, make(visit.exact(kind))
    raise RefusedError("Whose configs? The address names no topic, group or node.")


def _configs(visit: Visit, resource: ConfigResource) -> Mapping[str, ConfigEntry]:
    found = visit.admin.describe_configs([resource], documentation=True)[resource]
    if isinstance(found, KafkaError):
        raise found
    return found


def page(visit: Visit) -> Page:
    """All configs of a topic, group or node."""
    kind, resource = _resource(visit)
    entries = _configs(visit, resource)
    chosen = entries.get(visit.text("name"))
    values = {"kind": kind, "resource": resource, "entries": sorted(entries.items()), "sources": SOURCES,
              "chosen": chosen, "change": None}  # fmt: skip
    return Page("configs.html", values)


def change(visit: Visit, audited: Audited) -> Page:
    """Show a change, which the nodes have checked; with `confirm` make it."""
    kind, resource = _resource(visit)
    if kind == "node":
        raise RefusedError("Configs of nodes are changed in their settings files, or with sharegroups configs alter.")
    name = visit.required("name")
    entries = _configs(visit, resource)
    if name not in entries:
        raise RefusedError(f"{name} is not a config of a {kind}.{did_you_mean(name, entries)}")
    entry = entries[name]
    clears = visit.text("clear") == "yes"
    value = visit.exact("value")
    if len(value) > VALUE_MAX:
        raise RefusedError(f"The value has {len(value)} characters; at most {VALUE_MAX} are taken.")
    wanted = AlterConfig(name, None, OP_DELETE) if clears else AlterConfig(name, value, OP_SET)
    confirmed = visit.text("confirm") == "yes"
    if confirmed and visit.exact("was") != (entry.value or ""):
        raise RefusedError(
            f"{name} was changed meanwhile, to {_shown(entry)}; nothing was changed here. Check it, and try again.", 409
        )
    if not confirmed:
        _alter(visit, resource, wanted, validate_only=True)
    else:
        said = "removed" if clears else f"to {value!r}" if not entry.is_sensitive else "to a new value"
        end = audited(visit, f"Change config {name} of {kind} {resource.name} from {_shown(entry)} {said}")
        try:
            _alter(visit, resource, wanted, validate_only=False)
        except BaseException as error:
            end(f"failed: {getattr(error, 'message', None) or type(error).__name__}")
            raise
        end("done")
        entries = _configs(visit, resource)
    values = {"kind": kind, "resource": resource, "entries": sorted(entries.items()), "sources": SOURCES,
              "chosen": entry, "change": wanted, "clears": clears, "done": confirmed}  # fmt: skip
    return Page("configs.html", values)


def _shown(entry: ConfigEntry) -> str:
    return "(hidden)" if entry.is_sensitive else repr(entry.value)


def _alter(visit: Visit, resource: ConfigResource, wanted: AlterConfig, *, validate_only: bool) -> None:
    error = visit.admin.incremental_alter_configs({resource: [wanted]}, validate_only=validate_only)[resource]
    if error is not None:
        raise error
