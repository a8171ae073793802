"""Hints below an explanation on what to check next: for finished records, and for a topic that the group never used
(CT-110)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from shlex import quote
from typing import Final

from kip932.errors import KafkaError
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import ConfigResource, RecordsExplained
from sharegroups.cli.nearest import did_you_mean

_DLQ: Final = "errors.deadletterqueue.topic.name"
#: States of records that may have been given up.
_OVER: Final = frozenset({"finished", "archived"})
_NEVER_USED: Final = "no_state"
_NAMED_MAX: Final = 10


def look_further(admin: Admin, group: str, answers: Sequence[RecordsExplained]) -> list[str]:
    """Return lines for standard error. Hints that need an answer which the cluster does not give are left out."""
    lines: list[str] = []
    for told in answers:
        topic, number = told.partition
        if any(record.state in _OVER for record in told.records):
            lines.append(_of_ended(admin, group, topic, number))
        if any(record.obstacle == _NEVER_USED for record in told.records):
            lines.extend(_of_unused(admin, group, topic))
    return list(dict.fromkeys(lines))


def _of_ended(admin: Admin, group: str, topic: str, number: int) -> str:
    """Return where to find out whether a record was given up, and why."""
    entry = None
    with suppress(KafkaError):
        configs = admin.describe_configs([ConfigResource.group(group)])[ConfigResource.group(group)]
        entry = None if isinstance(configs, KafkaError) else configs.get(_DLQ)
    line = f"a line records_archived of {printable(topic)}-{number} in its leader's log, with offset and cause"
    if entry is None or not entry.value:
        return f"A record that was given up has {line}. Group {printable(group)} has no dead-letter topic ({_DLQ})."
    command = f"sharegroups dlq list --group {quote(group)} --origin {quote(topic)}:{number}"
    log = "what its job raised is in the log of the worker that ran it"
    return f"A record that was given up has a dead letter: {command}; and {line}; {log}."


def _of_unused(admin: Admin, group: str, topic: str) -> Iterable[str]:
    used: set[str] = set()
    with suppress(KafkaError):
        used = {part.topic for part in admin.list_share_group_partitions(group)}
    if not used or topic in used:
        return
    more = len(used) - _NAMED_MAX
    named = ", ".join(sorted(map(printable, used))[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    yield f"Group {printable(group)} never used {printable(topic)}.{did_you_mean(topic, used)} It has used: {named}."
