"""A click group with the exit codes of this project's tools."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click
from click.exceptions import Exit, NoArgsIsHelpError

from kip932.printable import printable
from sharegroups.cli.interrupts import status_of, terminable
from sharegroups.cli.output import UsageFailure

#: The status that a shell reports for a program ended by SIGPIPE.
UNREAD: Final = 141


class ToolGroup(click.Group):
    """A click group whose commands exit with 130 after Ctrl-C, 143 after SIGTERM, 141 when their output pipe is closed,
    and 1 for a wrong command line (CT-29, CT-80, CT-86).

    click by itself uses 1 for Ctrl-C and for a closed pipe, and 2 for a wrong command line. If a command has an
    attribute `usage_status`, that is the status for a wrong command line of it and of all commands below it.
    """

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Make the context as click does, but also handle a wrong command line of the group itself."""
        with _unread(), _wrong_usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke as click does, but also handle signals and the usage errors of all commands below the group."""
        try:
            with terminable(), _unread(), _wrong_usage():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            ctx.exit(status_of(interrupt))
        except click.ClickException as error:
            text = printable(error.message, keep="\n\t")  # it may contain foreign data (CT-82)
            error.message = text  # type: ignore[misc] # click declares it final, and reads it when it shows the error
            raise


@contextmanager
def _unread() -> Iterator[None]:
    """End silently when the output pipe is closed, with the status of a program ended by SIGPIPE.

    SIGPIPE itself would end the process before it could leave its group and close what is open.
    """
    try:
        yield
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:  # otherwise the interpreter would print it at exit
                with suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise Exit(UNREAD) from None


@contextmanager
def _wrong_usage() -> Iterator[None]:
    try:
        yield
    except NoArgsIsHelpError as error:
        error.show()
        error.ctx.exit(_status(error.ctx))
    except click.UsageError as error:
        failure = UsageFailure(error.format_message(), error.ctx)
        failure.exit_code = _status(error.ctx)  # type: ignore[misc] # declared on the class, read from the instance
        raise failure from error


def _status(ctx: click.Context | None) -> int:
    """Return the `usage_status` of the innermost command that has one, else 1."""
    while ctx is not None:
        if (status := getattr(ctx.command, "usage_status", None)) is not None:
            return int(status)
        ctx = ctx.parent
    return UsageFailure.exit_code
