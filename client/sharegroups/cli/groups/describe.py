"""`sharegroups groups describe`: prints the offsets, members or state of share groups (CT-15)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from kip932.errors import GroupIdNotFoundError, KafkaError
from sharegroups.admin_values import GroupOffsets, ListGroupsResult, ShareGroupDescription
from sharegroups.cli.columns import TABLES, legend
from sharegroups.cli.groups.asking import COMMAND, not_found, reached, timeout_option
from sharegroups.cli.groups.named import NamedByOptions
from sharegroups.cli.groups.stable import Kept, kept_back
from sharegroups.cli.groups.tables import document, show
from sharegroups.cli.groups.waiting_letters import tell_of_waiting_letters
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    is_complete,
    output_option,
    print_json,
    tell,
)

#: How many partitions of a group get an error line each.
_TOLD_MAX: Final = 5


@click.command(cls=NamedByOptions, epilog=legend(*(table for table in TABLES if " groups describe" in table)))
@click.option("--group", "names", multiple=True, type=NAME, help="Group to describe; repeatable.")
@click.option("--all-groups", is_flag=True, help="Describe every share group.")
@click.option("--offsets", is_flag=True, help="Start offsets and lag; the default.")
@click.option("--members", is_flag=True, help="Members and what is assigned to them.")
@click.option("--state", is_flag=True, help="State and coordinator.")
@click.option("--verbose", is_flag=True, help="More columns.")
@timeout_option
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
    with _errors_told_here(), failures(COMMAND), reached(bootstrap_server, command_config, timeout) as admin:
        listing = ListGroupsResult(()) if names else admin.list_groups(None, ["share"])
        wanted = sorted(set(names)) if names else [group.group_id for group in listing.valid()]
        described = admin.describe_share_groups(wanted)
        known = [name for name in wanted if not isinstance(described[name], KafkaError)]
        absent = not_found(admin, [name for name in wanted if isinstance(described[name], GroupIdNotFoundError)])
        found = {} if members or state else admin.list_share_group_offsets(dict.fromkeys(known), verbose)
        kept = kept_back(admin, found) if verbose else {}
    ok = is_complete(listing)
    documents: list[dict[str, object]] = []
    for name in wanted:
        group = described[name]
        problem = found.get(name) if isinstance(group, ShareGroupDescription) else group
        if isinstance(problem, KafkaError):
            tell(f"Error: {COMMAND} failed due to {absent.get(name, problem.message)}")
            ok = False
        elif isinstance(group, ShareGroupDescription):
            listed = found.get(name, GroupOffsets())
            assert isinstance(listed, GroupOffsets)
            ok &= _tell(name, listed)
            documents.append(document(group, listed) | _kept(kept.get(name)))
            if output == "text":
                show(group, listed, members=members, state=state, verbose=verbose)
                for each in kept.get(name, ()):
                    tell(each.text(name))
                tell_of_waiting_letters(name, listed)
    if output == "json":
        print_json(documents)
    finish(ok)


def _kept(kept: list[Kept] | None) -> dict[str, object]:
    return {} if kept is None else {"waits_for_transactions": [each.document() for each in kept]}


def _tell(group_id: str, listed: GroupOffsets) -> bool:
    """Print which partitions are left out, and why. Returns True when none are."""
    errors = sorted(listed.errors.items())
    for (topic, number), error in errors[:_TOLD_MAX]:
        tell(f"Error: group {group_id!r}, {topic}-{number}: {error.name}: {error.message}")
    if len(errors) > _TOLD_MAX:
        tell(f"Error: group {group_id!r}: {len(errors) - _TOLD_MAX} more partitions; --output json names all of them")
    return not errors


@contextmanager
def _errors_told_here() -> Iterator[None]:
    """Suppress the library's warnings about partitions that are left out: the command prints them itself."""
    nowhere, log = logging.NullHandler(), logging.getLogger("sharegroups")
    log.addHandler(nowhere)
    try:
        yield
    finally:
        log.removeHandler(nowhere)
