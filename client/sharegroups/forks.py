"""What a fork leaves behind: threads and connections stay with the parent, signal handlers go along.

Rules CL-122, CL-149 and CL-150. It imports no gRPC: the processes of a worker use it too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, Final

from sharegroups.errors import IllegalStateError

_REMEDY: Final = (
    "Make clients after the fork, in the process that uses them (gunicorn: in post_fork or at the first request, "
    "multiprocessing: in the child, or with the start method spawn)"
)


class OfOneProcess:
    """A client that works only in the process that made it. In a child that is forked from it, it counts as closed.

    A fork copies its memory and none of its threads, and another thread may hold its locks for ever in the copy. So the
    child must find it closed before it takes one.
    """

    _WHAT: ClassVar[str]
    _closed: bool

    def _belongs_here(self) -> None:
        """Note the process that makes this client. Call it in the constructor."""
        self._closed = False
        self._process_id = os.getpid()
        _clients.add(self)

    def _check_open(self) -> None:
        """Raises IllegalStateError when it is closed, or belongs to another process."""
        self._check_process()
        if self._closed:
            raise IllegalStateError(f"This {self._WHAT} has already been closed.")

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise another_process(self._WHAT, self._process_id)

    def _left_behind(self) -> None:
        """This process is a forked child."""
        self._closed = True


_clients: weakref.WeakSet[OfOneProcess] = weakref.WeakSet()


def another_process(what: str, made_in: int) -> IllegalStateError:
    """The error of a client that was made in process `made_in`, and is used in a child of it."""
    return IllegalStateError(
        f"this {what} was made in process {made_in}, and this is process {os.getpid()}, forked from it: a client's "
        f"threads and connections do not survive a fork. {_REMEDY}."
    )


def check_grpc(used_in: int | None) -> None:
    """Raises IllegalStateError where gRPC cannot work for a new client. `used_in`: the process that first used it."""
    if used_in is not None and used_in != os.getpid():
        raise IllegalStateError(
            f"no client can be made in process {os.getpid()}: process {used_in}, from which it was forked, had used a "
            "client of sharegroups before, and gRPC, once used, does not work in forked children. Use clients only "
            "after the fork, not while the program is loaded; or start processes with the method spawn or forkserver."
        )
    check_threads()


def check_threads() -> None:
    """Raises IllegalStateError when gevent or eventlet has replaced threads: a client would wait for ever (CL-150)."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        name, instead = "gevent", "Call gevent.monkey.patch_all(thread=False)"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        name, instead = "eventlet", "Call eventlet.monkey_patch(thread=False)"
    else:
        return
    raise IllegalStateError(
        f"{name}'s monkey patch has replaced Python's threads with green ones, in which gRPC waits for ever. "
        f"{instead}, or use clients in a process without the patch; for many jobs at once a Worker has `async def` "
        "handlers."
    )


SignalHandler = Callable[[int, FrameType | None], object]


def keep_signals(handler: SignalHandler, numbers: Iterable[int] = (signal.SIGTERM, signal.SIGINT)) -> dict[int, Any]:
    """From now on `handler` gets these signals, but not in a child that is forked: there they do what they did
    before, else multiprocessing's Pool cannot end its processes. Returns what that is. Call it in the main thread.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    _before.append(before)
    for number in before:
        signal.signal(number, handler)
    return before


@contextmanager
def signals(handler: SignalHandler, numbers: Iterable[int] = (signal.SIGTERM, signal.SIGINT)) -> Iterator[None]:
    """As `keep_signals`, until the block ends."""
    before = keep_signals(handler, numbers)
    try:
        yield
    finally:
        if before in _before:  # not in a forked child
            _before.remove(before)
            for number, earlier in before.items():
                signal.signal(number, earlier)


#: What the signals did before each `keep_signals` that has not ended, the outermost first.
_before: list[dict[int, Any]] = []


#: `mask`: what a thread that forks had blocked before.
_forking = threading.local()


def _before_fork() -> None:
    if (
        _before
    ):  # a signal that comes to the child before `_in_child` would go to the handler of its parent, and be lost
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _before[0])


def _after_fork() -> None:
    mask = vars(_forking).pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    for client in list(_clients):
        client._left_behind()
    if _before:
        signal.set_wakeup_fd(-1)  # the event loop's, which it shares with its parent
        for kept in reversed(_before):
            for number, earlier in kept.items():
                signal.signal(number, earlier)
        _before.clear()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
