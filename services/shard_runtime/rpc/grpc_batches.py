"""Makes grpc.aio free a batch's memory, even when the batch failed or its caller was cancelled (CM-99).

grpcio 1.85.1, the newest, frees it only when the awaiting coroutine resumes after a success (grpc/grpc issue 43360). A
call that its client resets leaves 96 bytes or more, and these pieces keep the allocator from returning the pages
between them: a node under an attack of resets grew by 6 MiB every 8 s, and never shrank.

Here the batch itself acts as the future and the event loop for grpcio. When the core has finished the batch, grpcio's
coroutine always resumes and frees the memory; only then does the caller get the result, or the failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from grpc._cython import cygrpc

#: The name in grpcio's module that every batch of grpc.aio goes through, of servers and of clients.
REPLACED: Final = "execute_batch"

Execute = Callable[[Any, tuple[Any, ...], Any], Coroutine[Any, None, None]]


class Batch:
    """One batch in progress. `done` is what the caller awaits; cancelling it does not stop the batch."""

    __slots__ = ("_loop", "_work", "done")

    def __init__(
        self, execute: Execute, call: Any, operations: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Start the batch. Raises what grpcio raises when the core does not accept it."""
        self._loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self._work = execute(call, operations, self)
        self._work.send(None)

    def create_future(self) -> Batch:
        """Return this batch: grpcio's coroutine uses it both as the event loop and as the future."""
        return self

    def call_soon_threadsafe(self, finish: Callable[..., None], *arguments: Any) -> None:
        """Run `finish` on this batch's event loop; grpcio's poller calls this on the thread of any of the process's
        event loops."""
        if asyncio.get_running_loop() is self._loop:
            finish(*arguments)
        else:
            self._loop.call_soon_threadsafe(finish, *arguments)

    def __await__(self) -> Iterator[None]:
        yield

    def cancelled(self) -> bool:
        """Return False always: grpcio would drop a cancelled batch without freeing its memory."""
        return False

    def set_result(self, result: None) -> None:
        """End the batch: the core has finished it."""
        self._finish(None)

    def set_exception(self, failure: Exception) -> None:
        """End the batch: the core has finished it with a failure, usually because the call was reset."""
        self._finish(failure)

    def _finish(self, failure: Exception | None) -> None:
        try:
            self._work.send(None)
        except StopIteration:
            pass
        except Exception as error:  # the caller gets it
            failure = failure or error
        if self.done.done():
            return  # the caller was cancelled
        if failure is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(failure)


def install() -> None:
    """Make all batches of this process run this way from now on. Safe to repeat."""
    original: Execute = getattr(cygrpc, REPLACED)
    if getattr(original, "frees_always", False):
        return

    def execute_batch(call: Any, operations: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        return Batch(original, call, operations, loop).done

    execute_batch.frees_always = True  # type: ignore[attr-defined]
    setattr(cygrpc, REPLACED, execute_batch)
