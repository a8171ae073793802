"""The event loop behind one blocking client: a thread that sleeps in its selector until somebody hands it work.

It owns the loop and the thread. It never polls: callers wait on a future, the loop on its selector.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's when it is installed (P-15), else asyncio's."""
    try:
        import uvloop  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _ignore_poller_noise(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """gRPC has one poller for all loops of a process. It reports EAGAIN when several share it, and a closed loop when
    an event of a client that was closed meanwhile reaches it in another client's loop; nothing is lost by either."""
    exception = context.get("exception")
    closed = isinstance(exception, RuntimeError) and "PollerCompletionQueue" in str(context.get("message"))
    if not closed and not isinstance(exception, BlockingIOError):
        loop.default_exception_handler(context)


class LoopThread:
    """A daemon thread with a running loop, from construction until `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = _new_loop()
        self._loop.set_exception_handler(_ignore_poller_noise)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], interrupted: Callable[[], object] | None = None) -> T:
        """Run a coroutine in the loop and wait for it.

        When the wait is interrupted (KeyboardInterrupt), the coroutine is cancelled, and behind that `interrupted` runs
        in the loop: it takes back what the coroutine may have brought and nobody will see.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except Exception:
            raise
        except BaseException:
            future.cancel()
            if interrupted is not None:
                self.post(interrupted)
            raise

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function in the loop and wait for its result."""

        async def work() -> T:
            return function()

        return self.call(work())

    def post(self, function: Callable[[], object]) -> None:
        """Have a plain function run in the loop soon, without waiting. No-op after `stop`."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the loop and wait for the thread. Call it once, from another thread."""
        if self._loop.is_closed():
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
