"""A group of commands with the exit codes of this project's tools."""

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

#: What a shell says of a program that SIGPIPE has ended.
UNREAD: Final = 141


class ToolGroup(click.Group):
    """Ctrl-C ends any command with status 130, SIGTERM with 143, output that nobody reads with 141, and a wrong command
    line with 1 (CT-29, CT-80, CT-86).

    Without this, click would use 1 for Ctrl-C and for a closed pipe, and 2 for a wrong command line. A command may have
    an attribute `usage_status`: then that is the status of a wrong command line, for it and all commands below it.
    """

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click's; covers a wrong command line of the group itself."""
        with _unread(), _wrong_usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's; covers signals, and wrong command lines of all commands below the group."""
        try:
            with terminable(), _unread(), _wrong_usage():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            ctx.exit(status_of(interrupt))
        except click.ClickException as error:
            text = printable(error.message, keep="\n\t")  # parts of it may be others' data (CT-82)
            error.message = text  # type: ignore[misc] # click declares it final, and reads it when it shows the error
            raise


@contextmanager
def _unread() -> Iterator[None]:
    """End as a program does that SIGPIPE ends, without a word: whoever closed the pipe wants no more, and knows it.

    The signal itself would end the process before it has left its group or closed what is open.
    """
    try:
        yield
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:  # it would be met again, and told, when the interpreter ends
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
        failure.exit_code = _status(error.ctx)  # type: ignore[misc] # click declares it for classes, reads it of instances
        raise failure from error


def _status(ctx: click.Context | None) -> int:
    """The `usage_status` of the nearest command that has one, else 1."""
    while ctx is not None:
        if (status := getattr(ctx.command, "usage_status", None)) is not None:
            return int(status)
        ctx = ctx.parent
    return UsageFailure.exit_code
