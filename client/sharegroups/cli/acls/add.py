"""`sharegroups acls add`: adds access control entries (CT-137)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from kip932.acls import Acl, PatternType, ResourceType
from kip932.errors import KafkaError
from kip932.printable import printable
from sharegroups.admin import Admin
from sharegroups.cli.acls.absent_names import absence_notes
from sharegroups.cli.acls.choosing import (
    Given,
    Resource,
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

#: Printed for entries about more than one may have meant.
_ALL_NOTE: Final = (
    "Note: without --operation, or a shorthand such as --producer, --consumer or --worker, an entry is about all "
    "operations (ALL), as in kafka-acls.sh."
)


@click.command()
@resource_options(with_all=True)
@pattern_option(in_filters=False)
@caller_options(in_filters=False)
@shorthand_options
@connection_options
@output_option
def add(*, bootstrap_server: str, command_config: Path | None, output: str, **given: Any) -> None:
    """Add access control entries: one for each principal, host, operation and resource.

    Without --operation an entry is about all operations, without a host about any. --producer, --consumer, --worker,
    --operator and --redrive stand for the operations that such a user needs. An entry that already exists is not an
    error, and is named.
    """
    chosen = Given(**given)
    wanted = entries(chosen)
    connection = settings(bootstrap_server, command_config)
    with failures("Adding access control entries"), open_reachable_admin(connection) as admin:
        existed = _existing(admin, wanted)
        with undecided("The entries may still be added. See: sharegroups acls list"):
            outcomes = admin.create_acls(wanted)
        added = [acl for acl, error in outcomes.items() if error is None]
        literal = [acl for acl in added if acl.resource_pattern_type == PatternType.LITERAL]
        notes = absence_notes(admin, (Resource(ResourceType(acl.resource_type), acl.resource_name) for acl in literal))
        notes += filter(None, [off_note(admin)])
    print_failures(outcomes, "added")
    for note in notes:
        print_stderr(note)
    if not chosen.operations and not chosen.shorthands:
        print_stderr(_ALL_NOTE)
    if output == "json":
        documents = outcome_documents(outcomes)
        print_json([each | {"existed": acl in existed} for each, acl in zip(documents, outcomes, strict=True)])
    else:
        for acl, error in outcomes.items():
            if error is None:
                click.echo(f"{'Exists already' if acl in existed else 'Added'}: {printable(acl.text)}")
    finish(not any(outcomes.values()))


def _existing(admin: Admin, wanted: Sequence[Acl]) -> frozenset[Acl]:
    """Return which of these entries exist before they are added; none if this caller may not list entries, which only
    one with a denial may not that may add some."""
    with suppress(KafkaError):
        return frozenset(admin.describe_acls()).intersection(wanted)
    return frozenset()
