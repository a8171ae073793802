"""What may go wrong while Spark starts, found before it or tidied up behind it."""

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
    """Raise SparkStartError for a master that Spark does not know, or of a standalone cluster where nobody listens.

    Spark itself tries for more than a minute, and ends with a stack that does not say whom it asked.
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
    """Start Spark inside. What it began is ended if that does not succeed; Ctrl-C means later what it meant before.

    A Java process that is abandoned while it starts would stay for good. Spark's own handler of Ctrl-C asks Java to
    stop from within whatever call is under way, which breaks the connection to Java and tells of it in tracebacks.
    """
    before, main = _children(), threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None  # None too where a program in C has set it
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
    """Processes that this thread has started and that live; none where the system does not tell."""
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()}
    except OSError:
        return set()
