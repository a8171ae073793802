"""`sharegroups acls add`: adds access control entries (CT-137)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kip932.printable import printable
from sharegroups.cli.acls.choosing import (
    Given,
    caller_options,
    entries,
    pattern_option,
    resource_options,
    shorthand_options,
)
from sharegroups.cli.acls.naming import outcome_documents, print_failures
from sharegroups.cli.acls.node_settings import off_note
from sharegroups.cli.groups.asking import undecided
from sharegroups.cli.output import (
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin


@click.command()
@resource_options(with_all=True)
@pattern_option(in_filters=False)
@caller_options(in_filters=False)
@shorthand_options
@connection_options
@output_option
def add(*, bootstrap_server: str, command_config: Path | None, output: str, **given: Any) -> None:
    """Add access control entries: for each principal, host, operation and resource one.

    Without --operation an entry is about all operations, without a host about any. --producer, --consumer and --worker
    stand for the operations that such a program needs. An entry that exists already is no error.
    """
    wanted = entries(Given(**given))
    connection = settings(bootstrap_server, command_config)
    with failures("Adding access control entries"), open_reachable_admin(connection) as admin:
        with undecided("The entries may still be added. See: sharegroups acls list"):
            outcomes = admin.create_acls(wanted)
        note = off_note(admin)
    print_failures(outcomes, "added")
    if note:
        print_stderr(note)
    if output == "json":
        print_json(outcome_documents(outcomes))
    else:
        for acl, error in outcomes.items():
            if error is None:
                click.echo(f"Added: {printable(acl.text)}")
    finish(not any(outcomes.values()))
