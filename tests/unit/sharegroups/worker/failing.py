"""Handlers that fail, for tests. A handler process imports this module, which imports little."""

from __future__ import annotations

import os
import signal
import time

from sharegroups.worker import Reject


class OddError(Exception):
    """An error of the program; its module is a part of its name in a traceback."""


def deep(value: bytes) -> None:
    try:
        shallow(value)
    except OddError as error:
        raise ValueError(f"two\nlines of {value!r}") from error


def shallow(value: bytes) -> None:
    raise OddError("the first cause")


def ends_badly(value: bytes) -> None:
    """Run in a handler process."""
    if value == b"raises":
        deep(value)
    if value == b"rejects":
        raise Reject("no address")
    if value == b"is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if value == b"exits":
        os._exit(7)
    if value == b"hangs":
        time.sleep(3_600)
