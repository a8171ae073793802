"""Handles Ctrl-C and SIGTERM: a command shuts down cleanly with status 130 or 143; a second signal ends it immediately.

A signal's exception may be raised between any two bytecodes of the main thread. So a command that must clean up runs in
a thread of its own (`attended`). The main thread only waits; when a signal ends the wait, it makes the command leave
(CT-80).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar

from sharegroups.forks import signals

T = TypeVar("T")

INTERRUPTED: Final = 130
TERMINATED: Final = 143
#: How long the current step may take after a signal, and then how long leaving may take, in seconds. Together they are
#: less than the 10 s after which `docker stop` and the like kill the process.
GRACE_S: Final = 1.0
LEAVE_S: Final = 5.0

#: A function that waits at most that many seconds for the work to end, and returns whether it has ended.
Ended = Callable[[float], bool]


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM, which is treated like Ctrl-C except for the exit status."""


def status_of(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status after a signal."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


def leaving_words(command: str) -> str:
    """Return what a command prints when it is interrupted before it starts: only `restore` has to reassure the user."""
    return "Interrupted: nothing is changed" if command == "restore" else ""


@contextmanager
def leaving_at_once(words: str = "") -> Iterator[None]:
    """Inside the block, let SIGINT and SIGTERM end the process immediately, without an exception, after writing `words`
    as a line on standard error.

    Use it for imports: an extension module may swallow an exception while it is imported. Nothing may be open that
    needs closing. If the program ignores or handles a signal itself, its handler stays.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        if words:
            os.write(2, f"{words}\n".encode())
        os._exit(128 + number)

    with _handling(leave):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """Let the first signal inside the block raise an exception: Terminated for SIGTERM, KeyboardInterrupt for SIGINT.
    The next one ends the process immediately. If the program ignores or handles a signal itself, its handler stays."""
    with _handling(_raise):
        yield


def attended(work: Callable[[], T], leave: Callable[[Ended], None]) -> T:
    """Run `work` in its own thread, and return its result or raise its error.

    When a signal is received, call `leave` in this thread, which must make `work` end within a bounded time; then raise
    KeyboardInterrupt. If `work` does not end even then, for instance because nothing reads its output, end the process.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    def ended(seconds: float) -> bool:
        return not wait_for([future], seconds).not_done

    try:
        threading.Thread(target=run, name="sharegroups-command", daemon=True).start()
        wait_for([future])
    except KeyboardInterrupt as interrupt:
        leave(ended)
        if not ended(0):
            sys.stderr.flush()  # not standard output: the work may hold its lock
            os._exit(status_of(interrupt))
        raise
    return future.result()


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    with signals(handler, [number for number in usual if signal.getsignal(number) in (usual[number], _raise)]):
        yield


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def _raise(number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) is _raise:
            signal.signal(each, _leave)
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
