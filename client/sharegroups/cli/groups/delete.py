"""`sharegroups groups delete`: deletes share groups with their offsets (CT-16, CT-26)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.admin_values import GroupListing
from sharegroups.cli.groups.asking import COMMAND, members_text, not_found, reached, timeout_option, undecided
from sharegroups.cli.groups.named import NamedByOptions
from sharegroups.cli.groups.waiting_letters import GROUP_RESTARTS, warn_of_waiting_letters
from sharegroups.cli.output import (
    NAME,
    UsageFailure,
    connection_options,
    failures,
    finish,
    is_complete,
    output_option,
    print_json,
    print_stderr,
)

#: By group name, the reason why it was not deleted; None if it was.
Causes = Mapping[str, str | None]


@click.command(cls=NamedByOptions)
@click.option("--group", "names", multiple=True, type=NAME, help="Group to delete; repeatable.")
@click.option("--all-groups", is_flag=True, help="Delete every share group.")
@timeout_option
@connection_options
@output_option
def delete(
    *,
    names: tuple[str, ...],
    all_groups: bool,
    timeout: int,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Delete share groups that have no members, with their offsets.

    If a group is created again with the same name, it starts as a new one. The group's configs and all records are
    kept.
    """
    if bool(names) == all_groups:
        raise UsageFailure("Option [delete] takes the options [group] or [all-groups]; give one of them")
    with failures(COMMAND), reached(bootstrap_server, command_config, timeout) as admin:
        listing = admin.list_groups(None, None)
        listed = {group.group_id: group for group in listing.valid()}
        shared = [name for name, group in listed.items() if group.type == "share"]
        wanted = sorted(set(names)) if names else shared
        causes = _refused(admin, wanted, listed, bool(listing.errors()))
        known = [name for name in wanted if name not in causes]
        warn_of_waiting_letters(admin, known, GROUP_RESTARTS)
        with undecided(f"These groups may be deleted: {', '.join(known)}. See: sharegroups groups list"):
            outcomes = admin.delete_share_groups(known) if known else {}
        gone = [name for name, error in outcomes.items() if isinstance(error, GroupIdNotFoundError)]
        unknown = not_found(admin, [name for name in gone if name not in listed], listed)
        causes |= {name: unknown.get(name) or _cause(name, error) for name, error in outcomes.items()}
    complete = bool(names) or is_complete(listing)
    _print_failures(wanted, causes, complete)
    _print(wanted, causes, output)
    finish(complete and not any(causes.values()))


def _refused(
    admin: Admin, wanted: Sequence[str], listed: Mapping[str, GroupListing], incomplete: bool
) -> dict[str, str | None]:
    """Return the groups that cannot be deleted, with the reason: missing, not a share group, in use, or being deleted.
    If the list of groups is incomplete, groups that are not in it are left out, since they may exist."""
    absent = [] if incomplete else [name for name in wanted if name not in listed]
    causes: dict[str, str | None] = dict(not_found(admin, absent, listed))
    for name in wanted:
        group = listed.get(name)
        if group is None:
            continue
        if group.type != "share":
            causes[name] = f"Group '{name}' is not a share group."
        elif group.state == "Dead":
            causes[name] = f"Share group '{name}' is being deleted already."
        elif group.state not in ("Empty", "Unknown"):  # for an unknown one, the coordinator gives the reason
            causes[name] = f"Share group '{name}' is not EMPTY. {members_text(name, 0)}"
    return causes


def _cause(name: str, error: KafkaError | None) -> str | None:
    if isinstance(error, GroupIdNotFoundError):
        return f"Group {name} not found. Another client has deleted it meanwhile."
    return None if error is None else f"{error.name}: {error.message}"


def _print_failures(wanted: Sequence[str], causes: Causes, complete: bool) -> None:
    """Print what failed. Call it before `_print`, since standard output may be a closed pipe."""
    if not wanted:
        print_stderr("There is no share group; nothing was deleted." if complete else "Nothing was deleted.")
    if any(causes.values()):
        print_stderr("Error: Deletion of some share groups failed:")
    for name in wanted:
        if causes[name] is not None:
            print_stderr(f"* Group '{name}' could not be deleted due to: {causes[name]}")


def _print(wanted: Sequence[str], causes: Causes, output: str) -> None:
    done = [name for name in wanted if causes[name] is None]
    said = ", ".join(f"'{printable(name)}'" for name in done)
    if output == "json":
        print_json([{"group": name, "deleted": causes[name] is None, "message": causes[name]} for name in wanted])
    elif done and len(done) == len(wanted):
        click.echo(f"Deletion of requested share groups ({said}) was successful.")
    elif done:
        click.echo(f"These share groups were deleted successfully: {said}")
