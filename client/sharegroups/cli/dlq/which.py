"""The text that `dlq list` prints when neither a topic nor a group is named: what it can list (CT-120)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from kip932.errors import KafkaError
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource
from sharegroups.cli.dlq.reading import TOPIC_NAME

#: How many groups are checked, and how many topics, and groups of each topic, are printed.
_GROUPS_MAX: Final = 200
_NAMED_MAX: Final = 10


def which_letters(admin: Admin) -> str:
    """Return which options to give, and the dead-letter topics of the groups, as far as they can be read."""
    topics: dict[str, list[str]] = {}
    with suppress(KafkaError):  # only a hint is lost
        topics = _topics(admin)
    named = [f"{printable(topic)} (of {_some(topics[topic])})" for topic in sorted(topics)]
    there = f"Dead-letter topics of groups: {_some(named)}" if named else "No group here has a dead-letter topic"
    return f"which letters? Give --topic DLQ, or --group G for the DLQ topic of a group. {there}."


def _topics(admin: Admin) -> dict[str, list[str]]:
    """Return the dead-letter topics with their groups. Raises KafkaError."""
    groups = [listing.group_id for listing in admin.list_groups(None, ["share"])][:_GROUPS_MAX]
    found = admin.describe_configs([ConfigResource.group(group) for group in groups]) if groups else {}
    topics: dict[str, list[str]] = {}
    for resource, configs in found.items():
        entry = None if isinstance(configs, KafkaError) else configs.get(TOPIC_NAME)
        if entry is not None and entry.value:
            topics.setdefault(entry.value, []).append(printable(resource.name))
    return topics


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
