"""The log of `sharegroups worker`, and its progress line on a terminal."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TextIO, cast

from kip932.log_lines import LineFormatter, is_text
from sharegroups.worker.logs import SERVICE

_EVERY_S: Final = 1.0
_CLEAR: Final = "\r\x1b[2K"


class _Handler(logging.StreamHandler):  # type: ignore[type-arg] # the class is not subscriptable at run time
    """Replaces the progress line with a log line, and writes the progress line again below it."""

    def __init__(self, line: Callable[[], str], shows: bool) -> None:
        super().__init__(sys.stderr)
        self._line = line
        self._shows = shows
        #: True if the program's last output on this terminal did not end with a newline, so that it must not be
        #: overwritten.
        self._amid_line = False

    def emit(self, record: logging.LogRecord) -> None:
        if self._shows:
            self.stream.write("\n" if self._amid_line else _CLEAR)
            self._amid_line = False
        super().emit(record)
        self.show()

    def show(self) -> None:
        """Write the progress line again."""
        if self._shows:
            with self.lock or threading.Lock():
                if not self._amid_line:
                    self.stream.write(_CLEAR + self._line())
                    self.flush()

    def print(self, stdout: IO[str], text: str) -> int:
        """Replace the progress line with the program's output; the progress line is written again within a second."""
        with self.lock or threading.Lock():
            if self._shows and text:
                if not self._amid_line:
                    self.stream.write(_CLEAR)
                    self.flush()
                self._amid_line = not text.endswith("\n")
            written = stdout.write(text)
            stdout.flush()
            return written

    def end(self) -> None:
        """Write the last progress line, and leave it there."""
        if self._shows:
            self.show()
            self.stream.write("\n")
        self._shows = False


class _Printed:
    """Replaces `sys.stdout` while its terminal shows a progress line."""

    def __init__(self, stdout: IO[str], handler: _Handler) -> None:
        self._stdout = stdout
        self._handler = handler

    def write(self, text: str) -> int:
        """Write the text in place of the progress line."""
        return self._handler.print(self._stdout, text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


@contextmanager
def _printing(handler: _Handler, shows: bool) -> Iterator[None]:
    """Keep the program's output off the progress line inside the block, if both go to a terminal."""
    before = sys.stdout
    if not shows or not before.isatty():
        yield
        return
    ours = _Printed(before, handler)
    sys.stdout = cast(TextIO, ours)
    try:
        yield
    finally:
        if cast(object, sys.stdout) is ours:
            sys.stdout = before


@contextmanager
def logging_with_progress(line: Callable[[], str], quiet: bool, form: str = "auto") -> Iterator[None]:
    """Log to standard error inside the block, unless the program has configured logging itself. On a terminal, also
    show a progress line, unless the log is JSON. `form`: a value of `log.format`."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    text = is_text(form, sys.stderr)
    shows = text and sys.stderr.isatty() and not quiet
    handler = _Handler(line, shows)
    handler.setFormatter(LineFormatter(text=text, service=SERVICE))
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
        with _printing(handler, shows):
            yield
    finally:
        over.set()
        ticking.join(_EVERY_S)
        handler.end()
        root.removeHandler(handler)
        ours.setLevel(level)
