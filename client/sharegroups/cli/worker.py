"""`sharegroups worker module:attribute`: runs a Worker that a program defines (CL-129).

With --reload it runs the worker in a separate process, and restarts it when a source file changes.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from click.core import ParameterSource

import sharegroups
from kip932.log_lines import FORM_VARIABLE, FORMS
from kip932.nearest_name import nearest_name
from sharegroups.cli.output import FILE, UsageFailure, failures, lines_of, pairs, print_stderr
from sharegroups.errors import ConfigError, KafkaError
from sharegroups.worker import Worker, WorkerError
from sharegroups.worker.core.policy import described

#: The folder that contains the modules of this library.
_LIBRARY: Final = str(Path(sharegroups.__file__).parent) + os.sep
_SEE: Final = "Name it as module:attribute, for example shop.mail:worker"
#: The interval at which --reload checks the source files, in seconds.
_RELOAD_POLL_S: Final = 0.5
#: The maximum number of source files that it watches, and the folders that it skips.
_WATCHED_FILES_MAX: Final = 5_000
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages", ".venv", "venv", "build", "dist"})
#: How long --reload lets the worker take to stop before it kills it, in seconds: a developer does not want to wait for
#: long jobs.
_RELOAD_STOP_S: Final = 5.0


@click.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    help="Handlers that run at once, all topics together; else as the worker says.",
)
@click.option("--processes", is_flag=True, help="Run all blocking handlers in processes.")
@click.option("--grace", type=click.FloatRange(min=0), help="Seconds for running jobs after SIGTERM.")
@click.option("--health-port", type=click.IntRange(0, 65535), help="Serve /healthz, /readyz and /metrics here.")
@click.option("--health-host", default=None, help="Address of the health port; 127.0.0.1 when left out.")
@click.option(
    "--bootstrap-server", envvar="SHAREGROUPS_BOOTSTRAP", help="host:port of any nodes; else as the worker says."
)
@click.option(
    "--command-config", type=FILE, help="File with client settings, one name=value per line; above those of the worker."
)
@click.option("--group", help="The share group; else as the worker says.")
@click.option("--reload", "reloads", is_flag=True, help="For development: start again when a source file changes.")
@click.option("--quiet", is_flag=True, help="Log warnings only, and show no progress.")
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default="auto",
    show_default=True,
    envvar=FORM_VARIABLE,
    show_envvar=True,
    help="Form of the log, on standard error; auto: console on a terminal, otherwise json.",
)
def worker(
    *,
    target: str,
    concurrency: int | None,
    processes: bool,
    grace: float | None,
    health_port: int | None,
    health_host: str | None,
    bootstrap_server: str | None,
    command_config: Path | None,
    group: str | None,
    reloads: bool,
    quiet: bool,
    log_format: str,
) -> None:
    """Run the jobs of a Worker, given as MODULE:ATTRIBUTE, such as shop.mail:worker; the current folder is on the path.

    After SIGTERM or Ctrl-C it takes no more records, lets running jobs end within --grace, acknowledges them, releases
    the rest and leaves; a second signal ends it immediately. Exit codes: 0 ended by itself, 1 an error, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    if reloads:
        sys.exit(_run_reloading([word for word in sys.argv[1:] if word != "--reload"]))
    given = pairs(lines_of(command_config))
    found = find_worker(target)
    _configure(found, given, command_config)
    _adjust(found, concurrency, grace, health_port, health_host)
    if bootstrap_server is not None and not ("bootstrap.servers" in given and _is_environment("bootstrap_server")):
        found.settings["bootstrap.servers"] = bootstrap_server
    if group is not None:
        found.settings["group.id"] = group
    if processes:
        found.use_processes()
    from sharegroups.cli.progress import logging_with_progress  # noqa: PLC0415

    # Modules and handlers live until the process ends; a garbage collection that includes them would stop all jobs for
    # about 30 ms.
    gc.freeze()
    with logging_with_progress(found.progress, quiet, log_format), failures("Working"):
        try:
            found.run()
        except WorkerError as error:
            raise click.ClickException(str(error)) from error
    if found.stopped_by is not None:
        sys.exit(128 + found.stopped_by)


def _configure(found: Worker, given: dict[str, str], file: Path | None) -> None:
    """Set the settings of --command-config. Raises ClickException, which names the file, for one that a worker does not
    have."""
    try:
        found.configure(given)
    except ConfigError as error:
        raise click.ClickException(f"{file}: {error}") from error


def _is_environment(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.ENVIRONMENT


def find_worker(target: str) -> Worker:
    """Import and return the Worker that `module:attribute` names.

    Raises UsageFailure, which names what was expected and what exists, and ClickException when the module fails.
    """
    module_name, colon, path = target.partition(":")
    if not colon or not module_name or not path:
        raise UsageFailure(f"{target!r} names no worker. {_SEE}")
    if module_name.endswith(".py"):  # importing it would run the file, and fail because it is not a package
        meant = os.path.normpath(module_name.removesuffix(".py")).replace(os.sep, ".")
        is_name = all(part.isidentifier() for part in meant.split("."))
        hint = f"Did you mean {meant}:{path}?" if is_name else _SEE
        raise UsageFailure(f"there is no module {module_name!r}. {hint}")
    sys.path.insert(0, os.getcwd())
    module = _imported(target, module_name)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise UsageFailure(f"{target!r}: {module_name} has no {part!r}{_others(module, part)}")
        found = getattr(found, part)
    if not isinstance(found, Worker):
        raise UsageFailure(f"{target!r} is a {type(found).__name__}, not a Worker{_others(module, path)}")
    return found


def _imported(target: str, module_name: str) -> Any:
    """Import and return the module. Raises UsageFailure if it does not exist, ClickException if it fails. For an
    argument that this library refused, the error is one line; otherwise a traceback that starts at the module's own
    frames is printed first."""
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise UsageFailure(
                f"{target!r}: there is no module {error.name!r} in {os.getcwd()} or on PYTHONPATH. {_SEE}"
            ) from error
        failure: Exception = error
    except Exception as error:
        failure = error
    if (place := _refused_at(failure)) is not None:
        raise click.ClickException(f"{module_name} could not be imported: {place}: {described(failure)}")
    trace = failure.__traceback__
    while trace is not None and _is_importing(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    for line in "".join(traceback.format_exception(type(failure), failure, trace)).splitlines():
        print_stderr(line)
    raise click.ClickException(f"{module_name} could not be imported: {described(failure)}")


def _refused_at(failure: Exception) -> str | None:
    """Return the line of the user's code whose arguments this library refused; None for any other failure."""
    frames = traceback.extract_tb(failure.__traceback__)
    if not isinstance(failure, ConfigError | KafkaError | ValueError) or not _is_ours(frames[-1].filename):
        return None
    place = next((frame for frame in reversed(frames) if not _is_ours(frame.filename)), None)
    return None if place is None else f"{place.filename}, line {place.lineno}"


def _is_ours(file: str) -> bool:
    return file.startswith(_LIBRARY)


def _is_importing(file: str) -> bool:
    """Return whether this file only imports the module, so that its frames come before those of the user's module."""
    return file in (__file__, import_module.__code__.co_filename) or file.startswith("<frozen importlib")


def _others(module: Any, wanted: str) -> str:
    workers = [name for name, value in vars(module).items() if isinstance(value, Worker)]
    if workers:
        return f". Did you mean {module.__name__}:{nearest_name(wanted, workers) or workers[0]}?"
    return f"; {module.__name__} defines no Worker"


def _adjust(
    found: Worker, concurrency: int | None, grace: float | None, health_port: int | None, health_host: str | None
) -> None:
    if concurrency is not None:
        found.concurrency = concurrency
    if grace is not None:
        found.grace = grace
    if health_port is not None:
        found.health_port = health_port
    if health_host is not None:
        found.health_host = health_host


def _run_reloading(words: list[str]) -> int:
    """Run `sharegroups <words>` in its own process, and restart it after each change to a source file.

    Returns the exit status once a signal has been received.
    """
    ended = _noted_signals()
    folder = Path.cwd()
    seen = source_files(folder)
    click.echo(f"watching {len(seen)} Python files below {folder}", err=True)
    while True:
        process = subprocess.Popen([sys.executable, "-c", "from sharegroups.cli import run; run()", *words])
        changed = None
        while not ended and changed is None:
            time.sleep(_RELOAD_POLL_S)
            now = source_files(folder)
            changed = next((path for path in sorted(now.keys() | seen.keys()) if now.get(path) != seen.get(path)), None)
            seen = now
        _stop_process(process, ended[0] if ended else signal.SIGTERM)
        if ended:
            return 128 + ended[0]
        click.echo(f"{changed} has changed: starting again", err=True)


def source_files(folder: Path) -> dict[str, float]:
    """Return the Python files below `folder` with their modification times."""
    found: dict[str, float] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith("."))
        for name in names:
            if name.endswith(".py") and len(found) < _WATCHED_FILES_MAX:
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime
                except OSError:  # removed in the meantime
                    continue
    return found


def _noted_signals() -> list[int]:
    """Return a list to which the number of each SIGINT and SIGTERM is appended from now on."""
    ended: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        ended.append(number)

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    return ended


def _stop_process(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(_RELOAD_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
