"""Finds causes of failure before Spark starts, and cleans up after a failed start."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from share_metrics.java import SparkStartError

_MASTER: Final = re.compile(r"local(?:\[(?:\d+|\*)(?:,\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")
_STANDALONE: Final = "spark://"
_ANSWER_S: Final = 5.0


def check_master(master: str) -> None:
    """Raise SparkStartError for a master that Spark does not know, or a standalone master that does not answer.

    Spark itself would retry for more than a minute, and fail with a stack trace that does not name the address.
    """
    if not _MASTER.fullmatch(master):
        raise SparkStartError(f"{master!r} is no master that Spark knows; try local[2] or spark://HOST:7077")
    if not master.startswith(_STANDALONE):
        return
    reasons = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal()):
            raise SparkStartError(f"{master!r} does not say where the master is; try spark://HOST:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
            return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise SparkStartError(f"no master of Spark answers at {', '.join(reasons)}; is it started, is --master right?")


@contextmanager
def starting() -> Iterator[None]:
    """Start Spark inside the block. On failure, ends the processes that it started. Restores the handler of Ctrl-C.

    A Java process that is abandoned while it starts would never end. Spark's own handler of Ctrl-C calls Java in the
    middle of another call, which breaks the connection to Java and prints tracebacks.
    """
    before, main = _children(), threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None  # also None if the handler was not set from Python
    try:
        yield
    except BaseException:
        for pid in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _children() -> set[int]:
    """The live processes that this thread has started; empty where the system does not show them."""
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()}
    except OSError:
        return set()
