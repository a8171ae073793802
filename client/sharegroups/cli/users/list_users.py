"""`sharegroups users list`: prints the users, with what is known about their passwords (CT-138)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from kip932.scram import mechanism_text
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

_HEADER: Final = ("USER", "MECHANISM", "ITERATIONS")
_WIDTHS: Final = (20, 15, 0)


@click.command("list", epilog=legend("sharegroups users list"))
@connection_options
@output_option
def list_(*, bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """List all users who have passwords."""
    connection = settings(bootstrap_server, command_config)
    with failures("Listing users"), open_reachable_admin(connection) as admin:
        found = admin.describe_user_scram_credentials()
    rows = [
        (user, mechanism_text(info.mechanism), info.iterations)
        for user, infos in found.items()
        if isinstance(infos, list)
        for info in infos
    ]
    if output == "json":
        print_json([dict(zip(("user", "mechanism", "iterations"), row, strict=True)) for row in rows])
    elif rows:
        print_table(_HEADER, rows, _WIDTHS)
        click.echo()
    else:
        print_stderr("There are no users with passwords. To add one: sharegroups users add NAME")
