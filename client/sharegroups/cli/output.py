"""Shared by the commands: options, client settings, tables as Kafka prints them, JSON, errors and exit codes.

Exit codes: 0 done, 1 an error was printed or the command line was wrong (CT-29), 130 after Ctrl-C, 143 after SIGTERM
(CT-80), 141 when the output pipe is closed (CT-86).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kip932.handshakes import SLOW, is_about_handshake
from kip932.nearest_name import nearest_name
from kip932.printable import printable, printable_json
from sharegroups.admin_values import ListGroupsResult
from sharegroups.cli.interrupts import status_of
from sharegroups.connection.core.stall_diagnosis import SOMETHING_LISTENS
from sharegroups.errors import BufferFullError, ConfigError, KafkaError, NetworkError, RequestTimedOutError

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_BOOTSTRAP = "127.0.0.1:7932"
_BOOTSTRAP: Final = "bootstrap.servers"
_OPTION: Final = "--bootstrap-server"
_VARIABLE: Final = "SHAREGROUPS_BOOTSTRAP"
#: How similar the name of a variable that is not read must be for a hint (1: the same).
_SIMILARITY_MIN: Final = 0.8
#: What the command line calls the settings for TLS.
TLS_SETTINGS: Final = "security.protocol and ssl.* in the file that --command-config FILE names"
#: What failed, as kafka-share-groups.sh calls it and writes that it did (CT-28).
SHARE_GROUP_COMMAND = "Executing share group command"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
#: Where `settings` keeps what names the nodes of a command.
_SERVERS: Final = "sharegroups.servers"
#: Gets the lines of `print_stderr` in this thread or task; None: they go to standard error.
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


class Name(click.ParamType[str]):
    """The name of a topic or a group: any text that is not blank."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name unchanged. Raises click.BadParameter for a blank one."""
        if not value.strip():
            self.fail("it is empty; expected a name", param, ctx)
        return value


NAME = Name()


class UsageFailure(click.UsageError):
    """A wrong command line; the exit code is 1 (CT-29) instead of click's 2."""

    exit_code = 1


def connection_options(function: F) -> F:
    """Add --bootstrap-server and --command-config."""
    function = click.option(
        "--command-config",
        type=FILE,
        help="File with client settings, one name=value per line.",
    )(function)
    return click.option(
        _OPTION,
        envvar=_VARIABLE,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        help="host:port of any nodes, separated by commas.",
    )(function)


def output_option(function: F) -> F:
    """Add --output, text or json."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="text for people, json for programs.",
    )(function)


def settings(bootstrap_server: str, command_config: Path | None, extra: Sequence[str] = ()) -> dict[str, Any]:
    """Return the client settings. Options override the file, and `extra` overrides both (CT-2).

    Raises UsageFailure for a line that is not name=value.
    """
    context = click.get_current_context()
    source = context.get_parameter_source("bootstrap_server")
    given = source is ParameterSource.COMMANDLINE
    said = {_BOOTSTRAP: bootstrap_server}
    # A person at a terminal should not have to wait for the client's default of 60 s to learn that the cluster is
    # unreachable.
    usual = said | {"default.api.timeout.ms": "10000"}
    in_file, others = pairs(lines_of(command_config)), pairs(extra)
    found = usual | in_file | (said if given else {}) | others
    named = _OPTION
    if _BOOTSTRAP in others:
        named = _BOOTSTRAP
    elif _BOOTSTRAP in in_file and not given:
        named = f"{_BOOTSTRAP} in {command_config}"
    elif source is ParameterSource.ENVIRONMENT:
        named = _VARIABLE
    elif not given and (similar := nearest_name(_VARIABLE, os.environ, _SIMILARITY_MIN)):
        print_stderr(
            f"the variable {similar} is not read; did you mean {_VARIABLE}? This command calls {bootstrap_server}"
        )
    context.meta[_SERVERS] = named
    return found


def servers_name() -> str:
    """Return what names the nodes of this command: an option, a variable, or a line of its file (CT-2)."""
    context = click.get_current_context(silent=True)
    return str(context.meta.get(_SERVERS, _OPTION)) if context else _OPTION


def lines_of(file: Path | None) -> list[str]:
    """Return the lines of a properties file without blank lines, comments, and spaces around name and value.

    Returns an empty list for None.
    """
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    wanted = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]
    return ["=".join(part.strip() for part in line.split("=", 1)) for line in wanted]


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return `name=value` texts as a dict. Values keep their spaces, since a separator may be a space. Raises
    UsageFailure."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageFailure(f"{text!r} is not name=value")
        found[name.strip()] = value
    return found


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int]) -> None:
    """Print a table as kafka-share-groups.sh does: left-aligned, with columns of at least `widths`, after a blank
    line."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    columns = [
        max([widths[index], *(len(row[index]) for row in texts)]) if widths[index] >= 15 else widths[index]
        for index in range(len(header))
    ]
    click.echo()
    for line in [list(header), *texts]:
        cells = [cell.ljust(column) for cell, column in zip(line[:-1], columns[:-1], strict=True)]
        click.echo(" ".join([*cells, line[-1]]))


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(printable_json(json.dumps(value, ensure_ascii=False, default=str)))


def print_names(names: Iterable[str]) -> None:
    """Print one name per line, with control characters escaped, since a name with a line break would look like two
    names."""
    for name in names:
        click.echo(printable(name))


def print_stderr(text: str, keep: str = "") -> None:
    """Print one line on standard error. Its control characters, except those in `keep`, are escaped, since it may
    contain foreign data (CT-82)."""
    listener = _listener.get()
    if listener is None:
        click.echo(printable(text, keep), err=True)
    else:
        listener(printable(text, keep))


@contextmanager
def lines_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Run a block whose lines for standard error go to `listener`, as the console does with the parts of commands that
    it uses. Other threads and tasks are not affected."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def print_errors(
    errors: Mapping[str, KafkaError | None],
    usual: str,
    output: str,
    done: Mapping[str, str] | None = None,
    *,
    hints: Mapping[str, str] | None = None,
) -> bool:
    """Print the outcome of each name. Returns True if there was no error.

    A line for a success begins with `usual`, unless `done` has another text for that name. `hints`: what to
    try, after the errors of these names.
    """
    done, hints = done or {}, hints or {}
    if output == "json":
        print_json(
            [
                {"name": name, "error": error.name if error else None, "message": error.message if error else None}
                for name, error in sorted(errors.items())
            ]
        )
    else:
        for name, error in sorted(errors.items()):
            if error is None:
                click.echo(f"{done.get(name, usual)} {printable(name)}.")
            else:
                print_stderr(f"Error: {name}: {error.name}: {error.message}{hints.get(name, '')}")
    return all(error is None for error in errors.values())


def note_none(what: str) -> None:
    """Print on standard error that there is none of what was to be listed, or none that this client's user may see:
    the answer is the same for both, since another one would show whether others have some."""
    print_stderr(f"There is no {what} here, or none that this user may see (DESCRIBE).")


def is_complete(listed: ListGroupsResult) -> bool:
    """Return whether all groups are listed. If not, print on standard error what is missing (CT-21)."""
    for error in listed.errors():
        print_stderr(f"Error: The list of groups is not complete. {error.message}")
    return not listed.errors()


def finish(ok: bool) -> None:
    """Exit with code 1 unless `ok`."""
    if not ok:
        sys.exit(1)


@contextmanager
def failures(what: str, status: int = 1) -> Iterator[None]:
    """Print an error of the client as one line and exit with `status`; after Ctrl-C with 130, after SIGTERM with
    143."""
    try:
        yield
    except (KafkaError, ConfigError) as error:
        silent = isinstance(error, RequestTimedOutError | NetworkError) and not isinstance(error, BufferFullError)
        from sharegroups.connection.coordinator_calls import SILENT  # noqa: PLC0415 - gRPC is imported with the clients

        # No hint is needed here: the producer's errors already contain it, and a cluster that refuses a call is up.
        texts = ("sharegroups up", "has refused for", SOMETHING_LISTENS, SILENT, SLOW)
        said = any(words in str(error) for words in texts)
        hint = f". Is the cluster up (`sharegroups up`), and is {servers_name()} right?"
        if is_about_handshake(str(error)):
            hint = f". {SOMETHING_LISTENS}: check {TLS_SETTINGS}, and {servers_name()}."
        failed = "failed due to" if what == SHARE_GROUP_COMMAND else "failed:"
        print_stderr(f"Error: {what} {failed} {error}{hint if silent and not said else ''}")
        sys.exit(status)
    except KeyboardInterrupt as interrupt:
        sys.exit(status_of(interrupt))
