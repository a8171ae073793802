"""The tables and documents that describe one share group (CT-23a to CT-23f, CT-23i, CT-23j)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

import click

from kip932.printable import printable
from sharegroups.admin_values import GroupOffsets, ShareGroupDescription, ShareGroupOffset
from sharegroups.cli.output import print_stderr, print_table
from sharegroups.insight.figures import age


def show(group: ShareGroupDescription, offsets: GroupOffsets, *, members: bool, state: bool, verbose: bool) -> None:
    """Print a table of a group's members, state or offsets; if there are none, a sentence instead."""
    if members:
        _show_members(group, verbose)
    elif state:
        _show_state(group, verbose)
    else:
        _show_offsets(group.group_id, offsets, verbose)


def _show_offsets(group_id: str, offsets: GroupOffsets, verbose: bool) -> None:
    if not offsets and offsets.errors:
        return
    if not offsets:
        click.echo(f"\nShare group '{printable(group_id)}' has no offset information.")
        return
    columns = _VERBOSE if verbose else _USUAL
    rows = [
        (group_id, topic, partition, *("-" if entry is None else _shown(read(entry)) for read in columns.values()))
        for (topic, partition), entry in sorted(offsets.items())
    ]
    widths = [_WIDTHS.get(name, 10) for name in columns]
    print_table(("GROUP", "TOPIC", "PARTITION", *columns), rows, (15, 15, 10, *widths[:-1], 0))
    click.echo()


def _shown(value: object) -> object:
    return "-" if value is None else value


_Columns = Mapping[str, Callable[[ShareGroupOffset], object]]
_USUAL: Final[_Columns] = {
    "START-OFFSET": attrgetter("start_offset"),
    "LAG": attrgetter("lag"),
    "ARCHIVED": attrgetter("archived"),
}
_VERBOSE: Final[_Columns] = {
    "LEADER-EPOCH": attrgetter("leader_epoch"),
    "START-OFFSET": attrgetter("start_offset"),
    "LAG": attrgetter("lag"),
    "IN-FLIGHT": attrgetter("in_flight"),
    "WAITING": attrgetter("waiting"),
    "DELAYED": attrgetter("delayed"),
    "ARCHIVED": attrgetter("archived"),
    "DEAD-LETTERS": attrgetter("dead_letters"),
    "OLDEST": lambda entry: age(entry.oldest_age_ms),
}
_WIDTHS: Final = {"LEADER-EPOCH": 13, "START-OFFSET": 13, "DEAD-LETTERS": 13}


def _show_members(group: ShareGroupDescription, verbose: bool) -> None:
    if not group.members:
        print_stderr(f"Share group '{group.group_id}' has no active members.")
        return
    rows = [
        (
            group.group_id,
            member.member_id,
            member.client_host,
            member.client_id,
            sum(len(numbers) for numbers in member.assignment.values()),
            *((member.member_epoch,) if verbose else ()),
            _assignment(member.assignment),
        )
        for member in group.members
    ]
    extra = ("MEMBER-EPOCH",) if verbose else ()
    header = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *extra, "ASSIGNMENT")
    print_table(header, rows, (15, 15, 15, 15, 12, *((13,) if verbose else ()), 0))
    click.echo()


def _show_state(group: ShareGroupDescription, verbose: bool) -> None:
    if not group.members:
        print_stderr(f"Share group '{group.group_id}' has no active members.")
    row = (
        group.group_id,
        _coordinator(group),
        group.state,
        *((group.group_epoch, group.assignment_epoch) if verbose else ()),
        len(group.members),
    )
    extra = ("GROUP-EPOCH", "ASSIGNMENT-EPOCH") if verbose else ()
    header = ("GROUP", "COORDINATOR (ID)", "STATE", *extra, "#MEMBERS")
    print_table(header, [row], (15, 25, 15, *((12, 17) if verbose else ()), 0))
    click.echo()


def _coordinator(group: ShareGroupDescription) -> str:
    node = group.coordinator
    return "-" if node is None else f"{node.host}:{node.port}  ({node.node_id})"


def _assignment(assignment: Mapping[str, tuple[int, ...]]) -> str:
    parts = [f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in sorted(assignment.items())]
    return ";".join(parts) or "-"


def document(group: ShareGroupDescription, offsets: GroupOffsets) -> dict[str, object]:
    """Return the group for `--output json`, with all that is known about it."""
    return {
        "group": group.group_id,
        "state": group.state,
        "coordinator": _coordinator(group),
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "member_epoch": member.member_epoch,
                "assignment": {topic: sorted(numbers) for topic, numbers in sorted(member.assignment.items())},
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": topic,
                "partition": partition,
                "start_offset": entry.start_offset if entry else None,
                "leader_epoch": entry.leader_epoch if entry else None,
                "lag": entry.lag if entry else None,
                "archived_by_limit": entry.archived_by_limit if entry else None,
                "archived_by_reject": entry.archived_by_reject if entry else None,
                "in_flight": entry.in_flight if entry else None,
                "waiting": entry.waiting if entry else None,
                "delayed": entry.delayed if entry else None,
                "oldest_age_ms": entry.oldest_age_ms if entry else None,
                "dead_letters": entry.dead_letters if entry else None,
                "dead_letter_age_ms": entry.dead_letter_age_ms if entry else None,
            }
            for (topic, partition), entry in sorted(offsets.items())
        ],
        "errors": [
            {"topic": topic, "partition": partition, "error": error.name, "message": error.message}
            for (topic, partition), error in sorted(offsets.errors.items())
        ],
    }
