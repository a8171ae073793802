"""`sharegroups acls remove`: shows which access control entries it will remove, asks, and removes them (CT-137)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kip932.acls import Acl, AclFilter
from kip932.errors import KafkaError
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.cli.acls.choosing import (
    Given,
    caller_options,
    filters,
    pattern_option,
    require_choice,
    resource_options,
    shorthand_options,
    star_note,
)
from sharegroups.cli.acls.list_acls import matching, print_entries
from sharegroups.cli.acls.naming import outcome_documents, print_failures
from sharegroups.cli.groups.asking import can_ask, undecided
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin

#: How many entries one request removes; a node accepts 1,000 filters.
_AT_ONCE: Final = 500
_ALL_ENTRIES: Final = "All entries: sharegroups acls list"


@click.command()
@resource_options(with_all=True)
@pattern_option(in_filters=True)
@caller_options(in_filters=True)
@shorthand_options
@click.option("--force", "--yes", "force", is_flag=True, help="Do not ask.")
@connection_options
@output_option
def remove(*, force: bool, bootstrap_server: str, command_config: Path | None, output: str, **given: Any) -> None:
    """Remove the access control entries that fit the options; what is not given fits everything. So --principal alone
    means all entries of a principal.

    First it prints these entries, and asks for confirmation. Exactly the entries printed are removed. --producer,
    --consumer, --worker, --operator and --redrive stand for the operations that `add` allows with them.
    """
    chosen = Given(**given)
    require_choice(chosen)
    wanted = filters(chosen)
    if not force and (output == "json" or not can_ask()):
        raise UsageFailure("remove asks before it removes, and there is no terminal to ask on; give --yes")
    connection = settings(bootstrap_server, command_config)
    with failures("Removing access control entries"), open_reachable_admin(connection) as admin:
        found = matching(admin, wanted)
        if output == "text" and found:
            print_entries(found)
        missing = "" if found else f"Error: there is no such entry.{_meant(admin, chosen)} {_ALL_ENTRIES}"
        if note := star_note(chosen, any_found=bool(found)):
            print_stderr(note)
        is_wanted = bool(found) and (force or click.confirm("Remove them?", err=True))
        outcomes: Mapping[Acl, KafkaError | None] = {}
        if is_wanted:
            with undecided("They may still be removed. See: sharegroups acls list"):
                outcomes = _remove(admin, found)
    _print(outcomes, missing, output)
    finish(is_wanted and not any(outcomes.values()))


def _meant(admin: Admin, chosen: Given) -> str:
    """Return ` Did you mean 'User:alice'?` if no entry is about one of the principals, but about one like it."""
    known = {acl.principal for acl in admin.describe_acls()}
    asked = (*chosen.principals, *chosen.allow_principals, *chosen.deny_principals)
    return next(filter(None, (did_you_mean(each, known) for each in asked if each not in known)), "")


def _remove(admin: Admin, found: Sequence[Acl]) -> dict[Acl, KafkaError | None]:
    """Remove entries, and return the error of each, or None. Raises KafkaError if the first request fails.

    Each is named in full, so an entry that was added since the list was read stays.
    """
    outcomes: dict[Acl, KafkaError | None] = {}
    for begin in range(0, len(found), _AT_ONCE):
        exact = {AclFilter(*acl): acl for acl in found[begin : begin + _AT_ONCE]}
        try:
            removed = admin.delete_acls(exact)
        except KafkaError as error:
            if not begin:
                raise
            return outcomes | dict.fromkeys(found[begin:], error)
        outcomes |= {exact[each]: got if isinstance(got, KafkaError) else None for each, got in removed.items()}
    return outcomes


def _print(outcomes: Mapping[Acl, KafkaError | None], missing: str, output: str) -> None:
    """Print the outcomes. `missing`: that there is no such entry, or "" if there is."""
    print_failures(outcomes, "removed")
    done = sum(error is None for error in outcomes.values())
    if output == "json":
        print_json(outcome_documents(outcomes))
    elif done:
        click.echo(f"Removed {done} access control {'entry' if done == 1 else 'entries'}.")
    elif not outcomes and not missing:
        print_stderr("Nothing was removed.")
    if missing:
        print_stderr(missing)
