"""Finds the store that `sharegroups up` runs on a data directory. Its socket has a new path at each start (PM-39)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The file in which `up` stores the directory of its store's socket, and the name of the socket in it.
_SOCKET_DIR_FILE: Final = "store.socket-dir"
_SOCKET_NAME: Final = "store.sock"
#: How long, in seconds, the store's socket may take to accept a connection.
_ANSWER_S: Final = 1.0


class NoStoreError(Exception):
    """No embedded store runs on the directory; the message names it."""


def url_of_up(directory: Path) -> str:
    """The URL of the store that runs on the directory. Raises NoStoreError.

    After a kill of `up` the socket may still be there, without a process that listens.
    """
    path: Path | None = None
    with suppress(OSError):  # no `up` has run there
        path = Path((directory / _SOCKET_DIR_FILE).read_text(encoding="utf-8").strip()) / _SOCKET_NAME
    if path is None or not path.exists():
        raise NoStoreError(
            f"no embedded store runs on {directory}; start `sharegroups up --data {directory}`, or give --store URL"
        )
    return f"unix://{path}"


class UpWatch:
    """Notices when the store of an `up` goes and comes back, which its restart does; call `check` about every second.

    A query notices that only at its next trigger. `away` is called at each check at which no store listens.
    """

    def __init__(self, directory: Path, wait_s: float, notify: Callable[[str], None], away: Callable[[], None]) -> None:
        self._directory = directory
        self._wait_s = wait_s
        self._notify = notify
        self._away = away
        self._url = url_of_up(directory)
        self._listened = True

    def check(self) -> None:
        """Report the first check at which no store listens, and the first one at which one does again."""
        url = self._listening()
        if url is None:
            self._away()
            if self._listened:
                self._notify(
                    f"the store of `sharegroups up` on {self._directory} is gone; from the next trigger on, the ingest "
                    f"waits for it for up to {self._wait_s:g} s"
                )
        elif not self._listened or url != self._url:
            self._notify(f"the store of `sharegroups up` on {self._directory} is at {url} now")
            self._url = url
        self._listened = url is not None

    def _listening(self) -> str | None:
        with suppress(NoStoreError, OSError), socket.socket(socket.AF_UNIX) as there:
            url = url_of_up(self._directory)
            there.settimeout(_ANSWER_S)
            there.connect(url.removeprefix("unix://"))
            return url
        return None
