"""`sharegroups groups`: list and describe share groups as kafka-share-groups.sh does (CT-3, CT-15, CT-21 to CT-23j)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.ids import TopicPartition
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import ShareGroupDescription, ShareGroupOffset
from sharegroups.cli import clients
from sharegroups.cli.columns import TABLES, legend
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_names,
    print_table,
    settings,
    tell,
)

_STATES = {"empty": "Empty", "stable": "Stable", "dead": "Dead"}
_COMMAND = "Executing share group command"
Offsets = dict[TopicPartition, ShareGroupOffset | None]


@click.group()
def groups() -> None:
    """Look at share groups."""


def _timeout_option(function: Any) -> Any:
    return click.option(
        "--timeout", default=30_000, show_default=True, type=click.IntRange(min=1), help="Limit of a call, in ms."
    )(function)


def _admin(bootstrap_server: str, command_config: Path | None, timeout: int) -> Admin:
    return clients.open_client(Admin, settings(bootstrap_server, command_config) | {"default.api.timeout.ms": timeout})


@groups.command("list")
@click.option("--state", is_flag=False, flag_value="", help="Show states; with a comma list only groups in these.")
@_timeout_option
@connection_options
@output_option
def list_(state: str | None, timeout: int, bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """List the share groups."""
    wanted = _states(state) if state else None
    with failures(_COMMAND), _admin(bootstrap_server, command_config, timeout) as admin:
        found = admin.list_groups(wanted, ["share"])
    if output == "json":
        print_json([{"group": group.group_id, "state": group.state} for group in found])
    elif state is None:
        print_names(group.group_id for group in found)
    else:
        print_table(("GROUP", "STATE"), [(group.group_id, group.state) for group in found], (15, 0))
        click.echo()


@groups.command(epilog=legend(*(table for table in TABLES if " groups describe" in table)))
@click.option("--group", "names", multiple=True, type=NAME, help="Group to describe; repeatable.")
@click.option("--all-groups", is_flag=True, help="Describe every share group.")
@click.option("--offsets", is_flag=True, help="Start offsets and lag; the default.")
@click.option("--members", is_flag=True, help="Members and what is assigned to them.")
@click.option("--state", is_flag=True, help="State and coordinator.")
@click.option("--verbose", is_flag=True, help="More columns.")
@_timeout_option
@connection_options
@output_option
def describe(
    *,
    names: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    timeout: int,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Describe share groups: offsets, members or state."""
    if bool(names) == all_groups:
        raise UsageFailure("Option [describe] takes one of these options: [group], [all-groups]")
    if offsets + members + state > 1:
        raise UsageFailure("Option [describe] takes at most one of these options: [offsets], [members], [state]")
    with failures(_COMMAND), _admin(bootstrap_server, command_config, timeout) as admin:
        wanted = sorted(set(names)) if names else [group.group_id for group in admin.list_groups(None, ["share"])]
        described = admin.describe_share_groups(wanted)
        known = [name for name in wanted if not isinstance(described[name], KafkaError)]
        found = {} if members or state else admin.list_share_group_offsets(dict.fromkeys(known))
    ok = True
    documents: list[dict[str, object]] = []
    for name in wanted:
        group = described[name]
        problem = found.get(name) if isinstance(group, ShareGroupDescription) else group
        if isinstance(problem, KafkaError):
            text = f"Group {name} not found." if isinstance(problem, GroupIdNotFoundError) else problem.message
            tell(f"Error: {_COMMAND} failed due to {text}")
            ok = False
        elif isinstance(group, ShareGroupDescription):
            listed = found.get(name, {})
            assert isinstance(listed, dict)
            documents.append(_document(group, listed))
            if output == "text":
                _show(group, listed, members=members, state=state, verbose=verbose)
    if output == "json":
        print_json(documents)
    finish(ok)


def _show(group: ShareGroupDescription, offsets: Offsets, *, members: bool, state: bool, verbose: bool) -> None:
    if members:
        _show_members(group, verbose)
    elif state:
        _show_state(group, verbose)
    else:
        _show_offsets(group.group_id, offsets, verbose)


def _show_offsets(group_id: str, offsets: Offsets, verbose: bool) -> None:
    if not offsets:
        click.echo(f"\nShare group '{printable(group_id)}' has no offset information.")
        return
    rows = []
    for (topic, partition), entry in sorted(offsets.items()):
        epoch = "-" if entry is None or entry.leader_epoch is None else entry.leader_epoch
        start = "-" if entry is None else entry.start_offset
        lag = "-" if entry is None or entry.lag is None else entry.lag
        archived = "-" if entry is None or entry.archived is None else entry.archived
        rows.append((group_id, topic, partition, *((epoch,) if verbose else ()), start, lag, archived))
    extra = ("LEADER-EPOCH",) if verbose else ()
    header = ("GROUP", "TOPIC", "PARTITION", *extra, "START-OFFSET", "LAG", "ARCHIVED")
    print_table(header, rows, (15, 15, 10, *((13,) if verbose else ()), 13, 10, 0))
    click.echo()


def _show_members(group: ShareGroupDescription, verbose: bool) -> None:
    if not group.members:
        tell(f"Share group '{group.group_id}' has no active members.")
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
        tell(f"Share group '{group.group_id}' has no active members.")
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


def _states(text: str) -> list[str]:
    """CT-20: known states, case-insensitive. Raises UsageFailure."""
    names = [part.strip() for part in text.split(",")]
    if any(name.lower() not in _STATES for name in names):
        raise UsageFailure(f"Invalid state list '{text}'. Valid states are: {', '.join(_STATES.values())}")
    return [_STATES[name.lower()] for name in names]


def _document(group: ShareGroupDescription, offsets: Offsets) -> dict[str, object]:
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
            }
            for (topic, partition), entry in sorted(offsets.items())
        ],
    }
