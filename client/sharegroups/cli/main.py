"""The command group `sharegroups`: the client's own tools, and commands of other packages, found by entry points in the
group `sharegroups.commands`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from sharegroups.cli.acls.command import acls
from sharegroups.cli.configs import configs
from sharegroups.cli.consume import consume
from sharegroups.cli.dlq.command import dlq
from sharegroups.cli.features import features
from sharegroups.cli.group import ToolGroup
from sharegroups.cli.groups.command import groups
from sharegroups.cli.interrupts import leaving_at_once, leaving_words
from sharegroups.cli.perf import perf
from sharegroups.cli.produce import produce
from sharegroups.cli.quick_start import importing
from sharegroups.cli.top.command import top
from sharegroups.cli.topics import topics
from sharegroups.cli.transactions.command import transactions
from sharegroups.cli.users.command import users
from sharegroups.cli.verify_consumer import verify_consumer
from sharegroups.cli.versions import version_option
from sharegroups.cli.worker import worker
from sharegroups.console.command import console

#: How to install the package, which is not on any index yet.
INSTALL = "in a clone of the project, pip install '.[{}]'"
_SERVER_COMMANDS = ("backup", "certs", "demo", "init", "restore", "scaler", "up")


class _Commands(ToolGroup):
    """Loads a command of another package only when it is run or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(found.name for found in _offered())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for found in _offered():
            if found.name == cmd_name:
                return _load(found)
        if cmd_name in _SERVER_COMMANDS:
            raise click.ClickException(f"'{cmd_name}' needs the servers: {INSTALL.format('server,cli')}")
        return None


def _offered() -> list[EntryPoint]:
    return list(entry_points(group="sharegroups.commands"))


def _load(found: EntryPoint) -> click.Command:
    try:
        with leaving_at_once(leaving_words(found.name)), importing():
            command: Any = found.load()
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"'{found.name}' needs the package {error.name!r}: {INSTALL.format('server,cli')}"
        ) from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"entry point {found.value!r} is a {type(command).__name__}, not a command")
    return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@version_option
def main() -> None:
    """Queues for Kafka's share groups (KIP-932).

    Exit codes: 0 done, 1 an error, 130 after Ctrl-C, 141 when the output pipe was closed, 143 after SIGTERM.
    """


for _command in (
    acls, configs, console, consume, dlq, features, groups, perf, produce, top, topics, transactions, users,
    verify_consumer, worker,
):  # fmt: skip
    main.add_command(_command)
