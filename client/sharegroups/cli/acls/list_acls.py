"""`sharegroups acls list`: prints the access control entries that fit the options (CT-137)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kip932.acls import Acl, AclFilter
from sharegroups.admin import Admin
from sharegroups.cli.acls.choosing import (
    Given,
    caller_options,
    filters,
    pattern_option,
    resource_options,
    star_note,
)
from sharegroups.cli.acls.naming import HEADER, WIDTHS, cells, document
from sharegroups.cli.acls.node_settings import off_note
from sharegroups.cli.columns import legend
from sharegroups.cli.output import (
    connection_options,
    failures,
    output_option,
    print_json,
    print_stderr,
    print_table,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin


@click.command("list", epilog=legend("sharegroups acls list"))
@resource_options(with_all=True)
@pattern_option(in_filters=True)
@caller_options(in_filters=True)
@connection_options
@output_option
def list_(*, bootstrap_server: str, command_config: Path | None, output: str, **given: Any) -> None:
    """List access control entries: all, or those that fit the options.

    With --resource-pattern-type match: those that apply to the resources named, by whatever pattern.
    """
    chosen = Given(**given)
    wanted = filters(chosen)
    connection = settings(bootstrap_server, command_config)
    with failures("Listing access control entries"), open_reachable_admin(connection) as admin:
        found = matching(admin, wanted)
        note = off_note(admin)
    if output == "json":
        print_json([document(acl) for acl in found])
    elif found:
        print_entries(found)
    else:
        print_stderr("No such entry.")
    for each in (star_note(chosen, any_found=bool(found)), note):
        if each:
            print_stderr(each)


def matching(admin: Admin, wanted: Sequence[AclFilter]) -> list[Acl]:
    """Return the entries that any of the filters matches, sorted. Raises KafkaError.

    One request is sent, so that the list is that of one moment.
    """
    found = admin.describe_acls(wanted[0] if len(wanted) == 1 else None)
    return [acl for acl in found if any(each.matches(acl) for each in wanted)]


def print_entries(found: Sequence[Acl]) -> None:
    """Print entries as a table, with a blank line after it."""
    print_table(HEADER, [cells(acl) for acl in found], WIDTHS)
    click.echo()
