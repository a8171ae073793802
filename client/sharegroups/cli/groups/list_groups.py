"""`sharegroups groups list`: prints the share groups, optionally with their states (CT-20 to CT-22)."""

from __future__ import annotations

from pathlib import Path

import click

from sharegroups.cli.groups.asking import COMMAND, reached, timeout_option
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    is_complete,
    note_none,
    output_option,
    print_json,
    print_names,
    print_table,
)

_STATES = {"empty": "Empty", "stable": "Stable", "dead": "Dead"}


@click.command("list")
@click.option("--state", is_flag=False, flag_value="", help="Show states; with a comma list only groups in these.")
@timeout_option
@connection_options
@output_option
def list_(state: str | None, timeout: int, bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """List the share groups."""
    wanted = _states(state) if state else None
    with failures(COMMAND), reached(bootstrap_server, command_config, timeout) as admin:
        listed = admin.list_groups(wanted, ["share"])
    found = listed.valid()
    if output == "json":
        print_json([{"group": group.group_id, "state": group.state} for group in found])
    elif state is None:
        print_names(group.group_id for group in found)
    else:
        print_table(("GROUP", "STATE"), [(group.group_id, group.state) for group in found], (15, 0))
        click.echo()
    complete = is_complete(listed)
    if complete and not found:
        note_none(f"share group{f' with the state {state}' if state else ''}")
    finish(complete)


def _states(text: str) -> list[str]:
    """Parse the states, ignoring case (CT-20). Raises UsageFailure for an unknown one."""
    names = [part.strip() for part in text.split(",")]
    if any(name.lower() not in _STATES for name in names):
        raise UsageFailure(f"Invalid state list '{text}'. Valid states are: {', '.join(_STATES.values())}")
    return [_STATES[name.lower()] for name in names]
