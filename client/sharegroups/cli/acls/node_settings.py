"""Whether access control is on, and who the super users are: settings of each node, read with DescribeConfigs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kip932.errors import KafkaError
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigEntry, ConfigResource

_ENABLED: Final = "access.control.enable"
_SUPER_USERS: Final = "super.users"
#: Printed after changes and lists while access control is off.
OFF_NOTE: Final = (
    f"Note: access control is off in this cluster ({_ENABLED}=false); entries change nothing until it is turned on."
)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node's settings for access control."""

    enabled: bool
    super_users: frozenset[str]


#: By node id: its settings, or the error because of which they are not known.
Settings = Mapping[int, NodeSettings | KafkaError]


def node_settings(admin: Admin, enough: Callable[[NodeSettings], bool] = lambda _found: False) -> Settings:
    """Return the settings of the live nodes, up to the first that is `enough`. Raises KafkaError if the nodes are not
    known.

    Each node is called by itself, so that one that does not answer hides no other.
    """
    found: dict[int, NodeSettings | KafkaError] = {}
    for node in admin.describe_cluster().nodes:
        resource = ConfigResource.broker(str(node.node_id))
        try:
            answer = admin.describe_configs([resource])[resource]
        except KafkaError as error:
            answer = error
        found[node.node_id] = known = answer if isinstance(answer, KafkaError) else _settings(answer)
        if isinstance(known, NodeSettings) and enough(known):
            break
    return found


def off_note(admin: Admin) -> str:
    """Return the note that access control is off, by the first node that answers; "" if it is on or not known."""
    with suppress(KafkaError):  # only the note is missing then
        for known in node_settings(admin, lambda _found: True).values():
            if isinstance(known, NodeSettings):
                return "" if known.enabled else OFF_NOTE
    return ""


def _settings(entries: Mapping[str, ConfigEntry]) -> NodeSettings:
    """Return what a node's configs say. A node that does not have them has no access control."""
    enabled, users = entries.get(_ENABLED), entries.get(_SUPER_USERS)
    texts = ((users.value or "") if users is not None else "").split(";")
    return NodeSettings(
        enabled is not None and enabled.value == "true", frozenset(text.strip() for text in texts if text.strip())
    )
