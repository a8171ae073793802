"""The store to read: that of --store, or the one that `sharegroups up` runs on the directory of --up (PM-39).

The socket of an embedded store has a new name at each start, which is stored in the data directory. So a command that
is run repeatedly names the directory.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import click

#: The file in which `up` stores the directory of its store's socket, and the name of the socket in it.
_NOTE: Final = "store.socket-dir"
_SOCKET: Final = "store.sock"

up_option = click.option(
    "--up",
    type=click.Path(path_type=Path, file_okay=False),
    help="Or the data directory of a `sharegroups up` that runs: ~/.local/share/sharegroups, unless it has --data.",
)


class NoStoreError(Exception):
    """No embedded store runs on the directory; the message names it."""


def store_of(store: str | None, up: Path | None) -> str:
    """The store's URL. Raises NoStoreError, and UsageError unless exactly one of the two is given."""
    found = store_or_none(store, up)
    if found is None:
        raise click.UsageError(
            "Missing option '--store': give --store URL, or --up DIR with the data directory of `sharegroups up`, "
            "~/.local/share/sharegroups unless it has --data"
        )
    return found


def store_or_none(store: str | None, up: Path | None) -> str | None:
    """As `store_of`, but None when neither is given."""
    if store is not None and up is not None:
        raise click.UsageError("give either --store URL or --up DIR, not both")
    return store if up is None else _running_on(up.expanduser())


def _running_on(directory: Path) -> str:
    socket: Path | None = None
    with suppress(OSError):  # no `up` has run there
        socket = Path((directory / _NOTE).read_text(encoding="utf-8").strip()) / _SOCKET
    if socket is None or not socket.exists():
        raise NoStoreError(
            f"no embedded store runs on {directory}; start `sharegroups up --data {directory}`, or give --store URL"
        )
    return f"unix://{socket}"
