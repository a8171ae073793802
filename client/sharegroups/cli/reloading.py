"""`sharegroups worker --reload`: runs the worker in its own process, and restarts it when a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

import click

_LOOK_S: Final = 0.5
#: How many files are watched at most.
_FILES_MAX: Final = 5_000
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", ".venv", "venv", "build", "dist"})
#: How long the worker may take to stop before it is killed, s: development does not wait for long jobs.
_STOP_S: Final = 5.0


def reloading(words: list[str]) -> int:
    """Run `sharegroups <words>`, restarting it after each change, until a signal comes. Returns the exit status."""
    ended = _signals()
    folder = Path.cwd()
    seen = sources(folder)
    click.echo(f"watching {len(seen)} Python files below {folder}", err=True)
    while True:
        process = subprocess.Popen([sys.executable, "-c", "from sharegroups.cli import run; run()", *words])
        changed = None
        while not ended and changed is None:
            time.sleep(_LOOK_S)
            now = sources(folder)
            changed = next((path for path in sorted(now.keys() | seen.keys()) if now.get(path) != seen.get(path)), None)
            seen = now
        _stop(process, ended[0] if ended else signal.SIGTERM)
        if ended:
            return 128 + ended[0]
        click.echo(f"{changed} has changed: starting again", err=True)


def sources(folder: Path) -> dict[str, float]:
    """Return the Python files below `folder` with their modification times."""
    found: dict[str, float] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in names:
            if name.endswith(".py") and len(found) < _FILES_MAX:
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime
                except OSError:  # removed in between
                    continue
    return found


def _signals() -> list[int]:
    """Return a list to which the number of each SIGINT and SIGTERM is appended from now on."""
    ended: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        ended.append(number)

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    return ended


def _stop(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
