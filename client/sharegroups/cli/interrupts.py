"""Ctrl-C and SIGTERM: a command leaves in good order, with status 130 or 143; a second signal ends it at once (CT-80).

A command that holds something works in a thread of its own (`attended`), for an exception that a signal raises strikes
between any two steps: the main thread only waits, and when a signal has ended its wait it has the work leave.
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

T = TypeVar("T")

INTERRUPTED: Final = 130
TERMINATED: Final = 143
#: How long what is under way may take to its end when a signal has come, and then how long leaving may take: together
#: less than the 10 s after which `docker stop` and the like kill.
GRACE_S: Final = 1.0
LEAVE_S: Final = 5.0

#: Waits so many seconds at most for the work to end; whether it has.
Ended = Callable[[float], bool]


class Terminated(KeyboardInterrupt):
    """SIGTERM. What is done at Ctrl-C is done then too, but for the exit status."""


def status_of(interrupt: KeyboardInterrupt) -> int:
    """The exit status after a signal."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM end the process without an exception, which an extension module may swallow while it
    is imported.

    For a time in which nothing is open that would have to be closed. A program that ignores or handles a signal itself
    is left alone.
    """
    with _handling(_leave):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, the first SIGTERM raises Terminated and the first SIGINT KeyboardInterrupt; the next of either ends the
    process at once. A program that ignores or handles a signal itself is left alone."""
    with _handling(_raise):
        yield


def attended(work: Callable[[], T], leave: Callable[[Ended], None]) -> T:
    """Run `work` in a thread of its own. When a signal comes, `leave` has it end within a bounded time, in this thread;
    then KeyboardInterrupt is raised.

    Work that goes on all the same, for instance because nobody reads its output, is cut off with the process.
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
            sys.stderr.flush()  # of standard output the work may hold the lock
            os._exit(status_of(interrupt))
        raise
    return future.result()


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: kept for number, kept in usual.items() if signal.getsignal(number) is kept}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, kept in before.items():
            signal.signal(number, kept)


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def _raise(number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) is _raise:
            signal.signal(each, _leave)
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
