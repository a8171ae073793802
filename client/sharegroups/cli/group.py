"""A group of commands with the exit codes of this project's tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from sharegroups.cli.interrupts import status_of, terminable
from sharegroups.cli.output import UsageFailure


class ToolGroup(click.Group):
    """Ctrl-C ends any command with status 130, SIGTERM with 143, a wrong command line with 1 (CT-29, CT-80); click has
    1 and 2 for the first and the last.

    A command below it may have an attribute `usage_status`: that is the status then, also of all below that command.
    """

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click's, for the words of the group itself."""
        with _wrong_usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's, with everything below the group."""
        try:
            with terminable(), _wrong_usage():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            ctx.exit(status_of(interrupt))


@contextmanager
def _wrong_usage() -> Iterator[None]:
    try:
        yield
    except NoArgsIsHelpError as error:
        error.show()
        error.ctx.exit(_status(error.ctx))
    except click.UsageError as error:
        failure = UsageFailure(error.format_message(), error.ctx)
        failure.exit_code = _status(error.ctx)  # type: ignore[misc] # click declares it for classes, reads it of instances
        raise failure from error


def _status(ctx: click.Context | None) -> int:
    """The nearest command's own, or that of the tools."""
    while ctx is not None:
        if (status := getattr(ctx.command, "usage_status", None)) is not None:
            return int(status)
        ctx = ctx.parent
    return UsageFailure.exit_code
