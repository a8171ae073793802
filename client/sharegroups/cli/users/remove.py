"""`sharegroups users remove`: removes a user, or one of its passwords (CT-138)."""

from __future__ import annotations

from pathlib import Path

import click

from kip932.acls import PRINCIPAL_TYPE
from kip932.errors import ResourceNotFoundError
from kip932.nearest_name import did_you_mean
from kip932.printable import printable
from kip932.scram import Mechanism, mechanism_text
from sharegroups.admin_values import UserScramCredentialDeletion
from sharegroups.cli.groups.asking import refuse, undecided
from sharegroups.cli.output import (
    NAME,
    connection_options,
    failures,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.users.naming import MECHANISM, kept_text, mechanisms


@click.command()
@click.argument("user", type=NAME)
@click.option("--mechanism", "mechanism_names", multiple=True, type=MECHANISM,
              help="Remove the password for this only; repeatable.  [default: all that the user has]")  # fmt: skip
@connection_options
@output_option
def remove(
    *, user: str, mechanism_names: tuple[str, ...], bootstrap_server: str, command_config: Path | None, output: str
) -> None:
    """Remove USER, whose password is accepted no more.

    Access control entries for the user stay: see sharegroups acls list --principal User:USER.
    """
    connection = settings(bootstrap_server, command_config)
    with failures("Removing a user"), open_reachable_admin(connection) as admin:
        everyone = admin.describe_user_scram_credentials()
        found = everyone.get(user)
        if not isinstance(found, list):
            meant = did_you_mean(user.removeprefix(f"{PRINCIPAL_TYPE}:"), everyone)
            refuse(f"there is no user {printable(user)}.{meant} All users: sharegroups users list")
        present = {info.mechanism: info for info in found}
        known = [each for each in Mechanism if each in present]
        chosen = mechanisms(mechanism_names) or known
        if not chosen:
            refuse(f"user {user} has passwords of a newer version only: {kept_text(found)}; use that version's command")
        if missing := [each for each in chosen if each not in present]:
            refuse(f"user {user} has no {mechanism_text(missing[0])} password; it has one for {kept_text(found)}")
        with undecided("The user may still be removed. See: sharegroups users list"):
            wanted = [UserScramCredentialDeletion(user, each) for each in chosen]
            error = admin.alter_user_scram_credentials(wanted)[user]
    # It was there just now: a first attempt whose answer was lost, or someone else, has removed it.
    if error is not None and not isinstance(error, ResourceNotFoundError):
        refuse(f"user {user} is not removed: {error.name}: {error.message}")
    left = [info for mechanism, info in present.items() if mechanism not in chosen]
    names = [mechanism_text(each) for each in chosen]
    if output == "json":
        print_json({"user": user, "removed": names, "left": [mechanism_text(info.mechanism) for info in left]})
    elif left:
        click.echo(f"Removed the {' and '.join(names)} password of user {printable(user)}.")
    else:
        click.echo(f"Removed user {printable(user)}.")
    if left:
        print_stderr(f"Note: the {kept_text(left)} password of {user} is still accepted.")
