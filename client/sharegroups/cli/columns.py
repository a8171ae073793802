"""The meaning of each column of the tables, in short sentences for `--help` and docs/reference/columns.md (CT-84)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Final

Columns = Mapping[str, str]

_WIDTH: Final = 78
_TERM: Final = 18

GROUP_OFFSETS: Final[Columns] = {
    "START-OFFSET": "The group has finished every record before it; - when it has not begun with the partition.",
    "LAG": "Records from START-OFFSET to the end that are not finished yet, acquired ones included; - when not known.",
    "ARCHIVED": "Records that are not delivered again though no consumer accepted them: rejected, or delivered too "
    "often (share.delivery.count.limit). Counted since the group began, or its offset was reset.",
    "LEADER-EPOCH": "With --verbose: the epoch of the partition's leader that wrote the group's state; - before that.",
}
GROUP_MEMBERS: Final[Columns] = {
    "CONSUMER-ID": "The member's id, which the consumer generates.",
    "HOST, CLIENT-ID": "The host that it connects from, and its client.id.",
    "#PARTITIONS": "How many partitions are assigned to it; several members may have the same partition.",
    "ASSIGNMENT": "These partitions, topic:number,number;topic:number.",
    "MEMBER-EPOCH": "With --verbose: which assignment it has; it grows with every change.",
}
GROUP_STATE: Final[Columns] = {
    "COORDINATOR (ID)": "The node that keeps the group, and its id.",
    "STATE": "Stable: it has members. Empty: it has none, but keeps its offsets. Dead: it is gone.",
    "#MEMBERS": "How many consumers are in it.",
    "GROUP-EPOCH": "With --verbose: the version of its members and topics.",
    "ASSIGNMENT-EPOCH": "With --verbose: the version that the assignment was computed for.",
}
TOPICS: Final[Columns] = {
    "TOPIC-ID": "The topic's id. A topic that is deleted and created again gets another one.",
    "PARTITION": "The partition's number, from 0.",
    "LEADER": "The id of the node that leads the partition; - while none does.",
    "LEADER-EPOCH": "How often it has had a new leader; - while it has none.",
}
DELETED_RECORDS: Final[Columns] = {
    "PARTITION": "The partition's number.",
    "LOG-START-OFFSET": "The first offset that the partition still has; the next record's when it has none.",
}
FEATURES: Final[Columns] = {
    "FEATURE": "Its name in Kafka.",
    "NODE": "The id of the node that tells it.",
    "LEVEL": "The level that the node has; it was started with it.",
    "MEANING": "What the levels mean, in the node's words.",
}
#: Every table that has a legend, under the command that prints it.
TABLES: Final[Mapping[str, Columns]] = {
    "sharegroups groups describe, or with --offsets": GROUP_OFFSETS,
    "sharegroups groups describe --members": GROUP_MEMBERS,
    "sharegroups groups describe --state": GROUP_STATE,
    "sharegroups topics describe": TOPICS,
    "sharegroups features": FEATURES,
    "sharegroups topics delete-records": DELETED_RECORDS,
}


def legend(*commands: str) -> str:
    """The columns of these tables, for the end of a help text, in lines that click does not wrap again."""
    parts: list[str] = []
    for command in commands:
        lines = ["\b", f"Columns of {command.removeprefix('sharegroups ')}:"]
        for name, meaning in TABLES[command].items():
            lines += textwrap.wrap(
                meaning, _WIDTH, initial_indent=f"  {name:<{_TERM}}", subsequent_indent=" " * (_TERM + 2)
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def page() -> str:
    """The reference page, docs/reference/columns.md."""
    parts = [
        "# Columns of the tables\n\nMade from the declarations by `make docs`; do not edit. `--help` of each command "
        "says the same. In the\nJSON of `--output json`, ARCHIVED is `archived_by_limit` and `archived_by_reject`.\n"
    ]
    for command, columns in TABLES.items():
        rows = [f"| `{name}` | {meaning} |" for name, meaning in columns.items()]
        parts.append("\n".join([f"## {command}", "", "| Column | Meaning |", "|---|---|", *rows, ""]))
    return "\n".join(parts)
