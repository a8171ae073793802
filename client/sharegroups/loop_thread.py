"""The event loop of one blocking client, in its own thread, which sleeps until it is given work.

It owns the loop and the thread. It never busy-waits: callers wait on a lock, the loop waits on its selector.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from sharegroups.forks import another_process, check_threads

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's when it is installed (P-15), else asyncio's."""
    try:
        import uvloop  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def ignore_poller_noise(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore two harmless errors of gRPC's poller, which is shared by all loops of a process.

    It reports EAGAIN when several loops share it, and a closed loop when an event for a closed client reaches it in
    another client's loop. In neither case is anything lost.
    """
    exception = context.get("exception")
    closed = isinstance(exception, RuntimeError) and "PollerCompletionQueue" in str(context.get("message"))
    if not closed and not isinstance(exception, BlockingIOError):
        loop.default_exception_handler(context)


def _over() -> threading.Lock:
    """Return a lock that is already held; releasing it signals that the work is over."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Handover(Generic[T]):
    """Runs a coroutine in the loop while its caller waits on a lock.

    It needs two futures fewer than asyncio's run_coroutine_threadsafe and costs half as much, which matters because
    every poll uses it once.
    """

    __slots__ = ("_loop", "_task", "_work", "over")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.over = _over()

    def begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._release)

    def cancel(self, then: Callable[[], object] | None) -> None:
        """Cancel the coroutine, since its caller stopped waiting; if it has already ended, run `then`. Runs in the
        loop."""
        if self._task is None:
            self._work.close()  # the caller was interrupted before the loop got the coroutine
            return
        self._task.cancel()
        if then is not None:
            # A cancelled coroutine has no result to take back; records handed out by now may belong to the next call.
            self._task.add_done_callback(lambda task: None if task.cancelled() else then())

    def result(self) -> T:
        """Return the coroutine's result, or raise its error. Call this once `over` has been released."""
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:  # the loop is ending; the calling thread itself was not cancelled
            raise concurrent.futures.CancelledError from None

    def _release(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # retrieve it, since an interrupted caller will not; otherwise asyncio logs it
        self.over.release()


class LoopThread:
    """A daemon thread with a running loop, from construction until `stop`.

    Raises IllegalStateError where no such thread can run, and in a child forked from the process that created it.
    """

    def __init__(self, name: str) -> None:
        check_threads()
        self._what = name.removeprefix("sharegroups-")
        self._process_id = os.getpid()
        self._loop = new_loop()
        self._loop.set_exception_handler(ignore_poller_noise)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], interrupted: Callable[[], object] | None = None) -> T:
        """Run a coroutine in the loop and wait for it.

        When the wait is interrupted (KeyboardInterrupt), the coroutine is cancelled. If it has ended by then,
        `interrupted` runs in the loop, before any later call; it must take back the result, which the caller never got.
        """
        if self._process_id != os.getpid():  # no thread would run it
            work.close()
            raise another_process(self._what, self._process_id)
        handover = _Handover(self._loop, work)
        try:
            self._loop.call_soon_threadsafe(handover.begin)
            handover.over.acquire()
        except BaseException:
            self.post(lambda: handover.cancel(interrupted))
            raise
        return handover.result()

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function in the loop and wait for its result."""

        async def work() -> T:
            return function()

        return self.call(work())

    def post(self, function: Callable[[], object]) -> None:
        """Run a plain function in the loop soon, without waiting for it. Does nothing after `stop`."""
        if self._process_id != os.getpid():
            raise another_process(self._what, self._process_id)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the loop and wait for the thread. Call it once, from another thread."""
        if self._loop.is_closed() or self._process_id != os.getpid():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
