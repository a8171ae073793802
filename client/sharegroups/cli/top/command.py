"""`sharegroups top`: a live screen of what waits, or one table of it (CT-157 to CT-160)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from sharegroups.aio.admin import Admin
from sharegroups.cli import clients
from sharegroups.cli.columns import legend
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    note_none,
    output_option,
    print_json,
    print_stderr,
    print_table,
    settings,
)
from sharegroups.cli.reaching import lateness_said, require_answer
from sharegroups.cli.top.cluster_source import ClusterSource
from sharegroups.cli.top.views import Overview
from sharegroups.config import ADMIN, Config
from sharegroups.insight.columns import ALL
from sharegroups.insight.rows import Row

T = TypeVar("T")

_TIMEOUT: Final = "default.api.timeout.ms"
#: How long a call may take, in ms, so that a screen whose cluster is gone says so soon.
_CALL_MS: Final = 5_000
_NEEDED: Final = (
    "The screen needs the package 'textual': in a clone of the project, pip install '.[cli,top]'. Without it: "
    "sharegroups top --once"
)


@click.command(epilog=legend("sharegroups top"))
@click.option("--once", is_flag=True, help="Print one table, and end.")
@connection_options
@output_option
def top(*, once: bool, bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Show what waits for each group and topic, the worst first, and why; then members, partitions and records.

    It changes nothing. A number that is not known is ?, and ≥ marks a sum from which something is missing.
    """
    given = settings(bootstrap_server, command_config)
    if once or output == "json":
        with failures("Listing what waits"):
            require_answer(given)
            with lateness_said():
                found = asyncio.run(_with_source(given, ClusterSource.overview))
        _print(found, output)
        return
    shown = _screen()
    if not _is_terminal():
        raise UsageFailure("the screen needs a terminal; for one table: sharegroups top --once")
    with failures("Showing what waits"):
        given[_TIMEOUT] = min(_CALL_MS, int(Config(ADMIN, given)[_TIMEOUT]))
        require_answer(given)
        status = asyncio.run(_with_source(given, shown))
    sys.exit(status)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty()


def _screen() -> Callable[[ClusterSource], Awaitable[int]]:
    """Import the screen. Raises ClickException if Textual is missing."""
    try:
        from sharegroups.cli.top.app import shown  # noqa: PLC0415 - only here Textual may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in {"textual", "rich"}:
            raise
        raise click.ClickException(_NEEDED) from error
    return shown


async def _with_source(given: Mapping[str, Any], use: Callable[[ClusterSource], Awaitable[T]]) -> T:
    async with clients.open_client(Admin, given) as admin:
        return await use(ClusterSource(admin))


def _print(found: Overview, output: str) -> None:
    if output == "json":
        print_json([_document(row) for row in found.rows])
    elif found.rows:
        header = [column.name for column in ALL]
        widths = [*(max(column.width, 15) for column in ALL[:2]), *(column.width for column in ALL[2:-1]), 0]
        print_table(header, [[column.text(row) for column in ALL] for row in found.rows], widths)
        click.echo()
    if found.left_out:
        print_stderr(f"Error: {found.left_out:,} more rows were left out by their leaders, those with the least lag.")
    for problem in found.problems:
        print_stderr(f"Error: {problem}")
    complete = not found.problems and not found.left_out
    if complete and not found.rows:
        note_none("share group")
    finish(complete)


def _document(row: Row) -> dict[str, object]:
    counts: Sequence[str] = ("lag", "oldest_ms", "in_flight", "delayed", "given_up", "dead_letters")
    return {
        "group": row.group,
        "topic": row.topic or None,
        "state": row.state,
        "members": row.members.value,
        **{name: getattr(row, name).value for name in counts},
        "at_least": row.lag.at_least or row.in_flight.at_least,
        "arriving_per_s": row.arriving.per_s,
        "finishing_per_s": row.finishing.per_s,
        "drained_in_ms": row.drained.in_ms,
        "drains_never": row.drained.never,
        "why": row.why,
    }
