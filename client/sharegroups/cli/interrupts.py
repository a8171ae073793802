"""Ctrl-C while modules are imported: the process leaves at once and quietly, with status 130."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Inside, SIGINT ends the process without an exception, which an extension module may swallow while it is imported.

    For a time in which nothing is open that would have to be closed. A program that ignores or handles SIGINT itself
    is left alone.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
