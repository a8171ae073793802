"""Shared by the group commands: --timeout, an admin client once the cluster answers, and the error texts for a group
that does not exist or has members."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any, Final, NoReturn, TypeVar

import click

from kip932.errors import KafkaError
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.cli.output import SHARE_GROUP_COMMAND, print_stderr, settings
from sharegroups.cli.reaching import open_reachable_admin

F = TypeVar("F", bound=Callable[..., Any])

#: The action named in an error that concerns no single group (CT-28).
COMMAND: Final = SHARE_GROUP_COMMAND
ALL_GROUPS: Final = "All groups: sharegroups groups list"


def timeout_option(function: F) -> F:
    """Add --timeout, in ms."""
    return click.option(
        "--timeout", default=30_000, show_default=True, type=click.IntRange(min=1), help="Limit of a call, in ms."
    )(function)


def reached(bootstrap_server: str, command_config: Path | None, timeout: int) -> AbstractContextManager[Admin]:
    """Once a node has answered (CT-90), open an admin client whose calls take at most `timeout` ms (CT-10).

    Raises ConfigError, UsageFailure, and KafkaError when no node answers.
    """
    return open_reachable_admin(settings(bootstrap_server, command_config) | {"default.api.timeout.ms": timeout})


def not_found(admin: Admin, group_ids: Iterable[str], listed: Iterable[str] | None = None) -> dict[str, str]:
    """Return the error text for each missing group, with the most similar existing one, and how to list all. `listed`:
    the existing groups; None if they have not been listed yet."""
    asked, known = list(group_ids), list(listed or ())
    if asked and listed is None:
        with suppress(KafkaError):  # only the hint is missing then
            known = [group.group_id for group in admin.list_groups(None, ["share"]).valid()]
    return {name: f"Group {name} not found.{did_you_mean(name, known)} {ALL_GROUPS}" for name in asked}


def absent(admin: Admin, group_id: str) -> tuple[str, str]:
    """Return the text of `not_found` for one group in two parts: the error, and what to try."""
    said = f"Group {group_id} not found."
    return said, not_found(admin, [group_id])[group_id].removeprefix(said).strip()


def members_text(group_id: str, count: int) -> str:
    """Return what to do about the members of a group that must be empty."""
    many = f"It has {count} member{'' if count == 1 else 's'}" if count else "It has members"
    return (
        f"{many}; stop them first, or wait until those that were killed are counted out. "
        f"Who they are: sharegroups groups describe --group {quote(group_id)} --members"
    )


def refuse(text: str) -> NoReturn:
    """Print one error and exit with 1."""
    print_stderr(f"Error: {text}")
    sys.exit(1)


def can_ask() -> bool:
    """Return whether a person can be asked. Tests replace it."""
    return sys.stdin.isatty()


@contextmanager
def warnings_suppressed() -> Iterator[None]:
    """Suppress the library's warnings about partitions that are left out, since the command prints them itself."""
    nowhere, log = logging.NullHandler(), logging.getLogger("sharegroups")
    log.addHandler(nowhere)
    try:
        yield
    finally:
        log.removeHandler(nowhere)


@contextmanager
def undecided(text: str) -> Iterator[None]:
    """Run a block that makes a change. If a signal interrupts it, print `text`, which says that the change may still be
    made, since the cluster carries on with it."""
    try:
        yield
    except KeyboardInterrupt:
        print_stderr(f"Interrupted. {text}")
        raise
