"""The log of `sharegroups worker`, and its progress line where a person looks on."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sharegroups.worker.logs import FORMAT

_EVERY_S: Final = 1.0
_CLEAR: Final = "\r\x1b[2K"


class _Handler(logging.StreamHandler):  # type: ignore[type-arg] # its parameter is not subscriptable when it runs
    """Writes log lines where the progress line stands, and the progress line below them."""

    def __init__(self, line: Callable[[], str], shows: bool) -> None:
        super().__init__(sys.stderr)
        self._line = line
        self._shows = shows

    def emit(self, record: logging.LogRecord) -> None:
        if self._shows:
            self.stream.write(_CLEAR)
        super().emit(record)
        self.show()

    def show(self) -> None:
        """Write the progress line anew."""
        if self._shows:
            with self.lock or threading.Lock():
                self.stream.write(_CLEAR + self._line())
                self.flush()

    def end(self) -> None:
        """Leave the last progress line where it is."""
        if self._shows:
            self.stream.write("\n")
        self._shows = False


@contextmanager
def logging_with_progress(line: Callable[[], str], quiet: bool) -> Iterator[None]:
    """Inside, the log goes to standard error, on a terminal with a progress line; unless the program has set up logging
    of its own."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = _Handler(line, sys.stderr.isatty() and not quiet)
    handler.setFormatter(logging.Formatter(FORMAT))
    root.addHandler(handler)
    ours = logging.getLogger("sharegroups")
    level = ours.level
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    over = threading.Event()

    def tick() -> None:
        while not over.wait(_EVERY_S):
            handler.show()

    ticking = threading.Thread(target=tick, name="sharegroups-progress", daemon=True)
    ticking.start()
    try:
        yield
    finally:
        over.set()
        ticking.join(_EVERY_S)
        handler.end()
        root.removeHandler(handler)
        ours.setLevel(level)
