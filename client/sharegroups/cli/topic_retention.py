"""Finds the topics that keep only what some share group still needs (CM-160), for notes that commands print."""

from __future__ import annotations

from collections.abc import Collection

from kip932.errors import KafkaError
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource


def keep_only_needed(admin: Admin, topics: Collection[str]) -> set[str]:
    """Return the topics with `sharegroups.retention=consumed`; none if their configs are unavailable, since this is
    only for a hint."""
    if not topics:
        return set()
    try:
        found = admin.describe_configs([ConfigResource.topic(topic) for topic in sorted(topics)])
    except KafkaError:
        return set()
    return {
        resource.name
        for resource, configs in found.items()
        if not isinstance(configs, KafkaError)
        and (config := configs.get("sharegroups.retention")) is not None
        and config.value == "consumed"
    }
