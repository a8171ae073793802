"""`sharegroups users add`: adds a user, or changes the password of one (CT-138)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Final

import click

from kip932.errors import KafkaError, ResourceNotFoundError
from kip932.printable import printable
from kip932.scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    PASSWORD_MAX,
    Mechanism,
    RefusedPasswordError,
    mechanism_text,
    prepared,
)
from sharegroups.admin import Admin
from sharegroups.admin_values import ScramCredentialInfo, UserScramCredentialUpsertion
from sharegroups.cli.groups.asking import can_ask, refuse, undecided
from sharegroups.cli.output import (
    FILE,
    UsageFailure,
    connection_options,
    failures,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin
from sharegroups.cli.users.naming import MECHANISM, UserName, kept_text, mechanisms

#: How much of a file or of standard input is read: more than any password has.
_BYTES_MAX: Final = 4 * PASSWORD_MAX + 3


@click.command()
@click.argument("user", type=UserName())
@click.option("--mechanism", "mechanism_names", multiple=True, type=MECHANISM,
              help="What the password is for; repeatable.  [default: all that the user has; SCRAM-SHA-256 for a new "
              "one]")  # fmt: skip
@click.option("--iterations", type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX), default=ITERATIONS_DEFAULT,
              show_default=True, help="How often the password is hashed.")  # fmt: skip
@click.option("--password-file", type=FILE, help="Read the password from this file: its only line.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input: its only line.")
@connection_options
@output_option
def add(
    *,
    user: str,
    mechanism_names: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    password_stdin: bool,
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
) -> None:
    """Add USER with a password; for a user that exists, change the password.

    The password is asked for, without being shown, unless --password-file or --password-stdin is given. It is hashed
    here and not sent.
    """
    given = _given_password(password_file, password_stdin)
    connection = settings(bootstrap_server, command_config)
    with failures("Adding a user"), open_reachable_admin(connection) as admin:
        before = _passwords_of(admin, user)
        known = [Mechanism(info.mechanism) for info in before if info.mechanism in set(Mechanism)]
        chosen = mechanisms(mechanism_names) or known or [Mechanism.SCRAM_SHA_256]
        password = _asked_password(user, bool(before)) if given is None else given
        wanted = [UserScramCredentialUpsertion(user, password, each, iterations) for each in chosen]
        with undecided("The password may still be set. See: sharegroups users list"):
            error = admin.alter_user_scram_credentials(wanted)[user]
    if error is not None:
        refuse(f"user {user} is not added: {error.name}: {error.message}")
    if output == "json":
        names = [each.text for each in chosen]
        print_json({"user": user, "added": not before, "mechanisms": names, "iterations": iterations})
    else:
        what = "Changed the password of user" if before else "Added user"
        click.echo(f"{what} {printable(user)} ({' and '.join(each.text for each in chosen)}).")
    _note_others(user, before, chosen)


def _passwords_of(admin: Admin, user: str) -> Sequence[ScramCredentialInfo]:
    """Return what is known about a user's passwords; nothing for a new user. Raises KafkaError."""
    found = admin.describe_user_scram_credentials([user])[user]
    if isinstance(found, ResourceNotFoundError):
        return []
    if isinstance(found, KafkaError):
        raise found
    return found


def _note_others(user: str, before: Sequence[ScramCredentialInfo], chosen: Sequence[Mechanism]) -> None:
    """Print that a former password is still good, if it is."""
    others = [info for info in before if info.mechanism not in set(chosen)]
    if others:
        options = " ".join(f"--mechanism {mechanism_text(info.mechanism)}" for info in others)
        print_stderr(
            f"Note: the {kept_text(others)} password of {user} is as before, and still accepted. To remove it: "
            f"sharegroups users remove {quote(user)} {options}"
        )


def _given_password(file: Path | None, stdin: bool) -> str | None:
    """Return the password of a file or of standard input; None without either. Raises UsageFailure."""
    if file is not None and stdin:
        raise UsageFailure("--password-file and --password-stdin are both given; give one")
    if file is not None:
        with file.open("rb") as opened:
            return _only_line(opened.read(_BYTES_MAX), str(file))
    if stdin:
        return _only_line(sys.stdin.buffer.read(_BYTES_MAX), "standard input")
    if not can_ask():
        raise UsageFailure("there is no terminal to ask for the password on; give --password-file or --password-stdin")
    return None


def _only_line(data: bytes, where: str) -> str:
    """Return the password in what was read. Raises UsageFailure."""
    try:
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageFailure(f"the password in {where} is not UTF-8 text") from None
    if "\n" in text:
        raise UsageFailure(f"{where} has several lines; expected one, the password")
    try:
        prepared(text)
    except RefusedPasswordError as error:
        raise UsageFailure(f"{where}: {error}") from None
    return text


def _asked_password(user: str, exists: bool) -> str:
    """Ask for a password, twice, without showing it."""

    def usable(value: str) -> str:
        try:
            prepared(value)
        except RefusedPasswordError as error:
            raise click.UsageError(str(error)) from None  # click prints it and asks again
        return value

    which = "New password" if exists else "Password"
    asked: str = click.prompt(
        f"{which} for user {printable(user)}", hide_input=True, confirmation_prompt=True, err=True, value_proc=usable
    )
    return asked
