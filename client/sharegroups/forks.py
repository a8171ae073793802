"""Handles forks: a child inherits its parent's signal handlers, but not its threads and connections.

Rules CL-122, CL-149 and CL-150. This module does not import gRPC, since a worker's handler processes use it too.
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


class ProcessBound:
    """A client that works only in the process that created it. In a child forked from that process, it counts as
    closed.

    A fork copies the client's memory but none of its threads, so a lock that another thread held is never released in
    the copy. The child must therefore find the client closed before it takes a lock.
    """

    _NOUN: ClassVar[str]
    _closed: bool

    def _bind_process(self) -> None:
        """Remember the process that creates this client. Call this in the constructor."""
        self._closed = False
        self._process_id = os.getpid()
        _clients.add(self)

    def _check_open(self) -> None:
        """Raise IllegalStateError when the client is closed, or belongs to another process."""
        self._check_process()
        if self._closed:
            raise IllegalStateError(f"This {self._NOUN} has already been closed.")

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise another_process(self._NOUN, self._process_id)

    def _close_in_child(self) -> None:
        """Mark the client as closed, since this process is a forked child."""
        self._closed = True


_clients: weakref.WeakSet[ProcessBound] = weakref.WeakSet()


def another_process(what: str, made_in: int) -> IllegalStateError:
    """Return the error for a client that was created in process `made_in` and is used in a child of it."""
    return IllegalStateError(
        f"this {what} was made in process {made_in}, and this is process {os.getpid()}, forked from it: a client's "
        f"threads and connections do not survive a fork. {_REMEDY}."
    )


def check_grpc(used_in: int | None) -> None:
    """Raise IllegalStateError if gRPC cannot work for a new client. `used_in`: the process that first used gRPC."""
    if used_in is not None and used_in != os.getpid():
        raise IllegalStateError(
            f"no client can be made in process {os.getpid()}: process {used_in}, from which it was forked, had used a "
            "client of sharegroups before, and gRPC, once used, does not work in forked children. Use clients only "
            "after the fork, not while the program is loaded; or start processes with the method spawn or forkserver."
        )
    check_threads()


def check_threads() -> None:
    """Raise IllegalStateError if gevent or eventlet has replaced threads, since a client would then wait forever
    (CL-150)."""
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


def handle_signals(handler: SignalHandler, numbers: Iterable[int] = (signal.SIGTERM, signal.SIGINT)) -> dict[int, Any]:
    """Handle these signals with `handler` from now on, and return the earlier handlers. Call it in the main thread.

    In a forked child, the earlier handlers are restored, since multiprocessing's Pool could not end its processes
    otherwise.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    _before.append(before)
    for number in before:
        signal.signal(number, handler)
    return before


@contextmanager
def signals(handler: SignalHandler, numbers: Iterable[int] = (signal.SIGTERM, signal.SIGINT)) -> Iterator[None]:
    """Handle these signals with `handler`, like `handle_signals`, until the block ends."""
    before = handle_signals(handler, numbers)
    try:
        yield
    finally:
        if before in _before:  # not in a forked child
            _before.remove(before)
            for number, earlier in before.items():
                signal.signal(number, earlier)


#: The handlers that each `handle_signals` still in effect has replaced, outermost first.
_before: list[dict[int, Any]] = []


#: `mask`: the signals that the forking thread had blocked before the fork.
_forking = threading.local()


def _before_fork() -> None:
    if _before:
        # A signal that reached the child before `_in_child` runs would go to the parent's handler and be lost.
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _before[0])


def _after_fork() -> None:
    mask = vars(_forking).pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    for client in list(_clients):
        client._close_in_child()
    if _before:
        signal.set_wakeup_fd(-1)  # it belonged to the event loop, which the child shares with its parent
        for kept in reversed(_before):
            for number, earlier in kept.items():
                signal.signal(number, earlier)
        _before.clear()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
