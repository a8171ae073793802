"""grpc.aio's server with an accept loop that no request can end (CM-84), and with batches that free their memory
(CM-99).

grpcio 1.85.1, the newest, decodes a call's path inside the loop that accepts calls. One byte that is not UTF-8 raises
there, the server shuts itself down, and no client is served any more. Here every served method is registered with
gRPC's core, which compares paths as bytes. A call to any other path is answered UNIMPLEMENTED without decoding the
path.

grpcio also fails to free the memory of some batches of a call's operations; see `Batch`.

This replaces parts of grpcio that are not public. A server is created only if grpcio has the names needed here, else
the error names the release. `tests/attack/test_path_bytes.py` shows that the accept loop is in use, and
`tests/integration/runtime/test_reset_calls.py` that the batches are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final

import grpc
from grpc._cython import cygrpc
from grpc.aio._server import Server as AioServer

#: The function in grpcio's module that every batch of grpc.aio goes through, in servers and in clients.
EXECUTE_BATCH: Final = "execute_batch"
_NEEDED: Final = ("_handle_rpc", "_schedule_rpc_coro", "_RequestCallError", "AioServer", EXECUTE_BATCH)
_NEEDED_OF_SERVER: Final = ("_make_request_call_future", "_request_call", "_request_registered_call")
#: A path that no service has: real ones begin with a slash.
_NO_METHOD: Final = ""

Handler = Any
ExecuteBatch = Callable[[Any, tuple[Any, ...], Any], Coroutine[Any, None, None]]


class UnknownGrpcError(Exception):
    """The installed grpcio lacks names that this module replaces; the message lists them."""


def refuse_unknown_grpc() -> None:
    """Raise UnknownGrpcError when this module does not fit the installed grpcio."""
    missing = [name for name in _NEEDED if not hasattr(cygrpc, name)]
    missing += [f"AioServer.{name}" for name in _NEEDED_OF_SERVER if not hasattr(cygrpc.AioServer, name)]
    if missing:
        raise UnknownGrpcError(
            f"grpcio {grpc.__version__} has no {', '.join(missing)}, which the server needs to accept calls safely, "
            "and to free what they took; expected grpcio 1.85. Try: pip install 'grpcio>=1.85,<1.86'"  # CM-84, CM-99
        )


class _Accepting(cygrpc.AioServer):  # type: ignore[misc]  # it has no types
    """Accepts calls of each method in a task of its own, and calls of no known method in one more.

    The base class's loop still runs; it waits for these tasks, and restarts one that the core ended while the server
    runs. `calls_max` bounds the calls in progress; further ones are answered RESOURCE_EXHAUSTED.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: tuple[Any, ...], calls_max: int, otherwise: Handler | None
    ) -> None:
        super().__init__(loop, None, (), (), options, None)
        self.accepted = 0
        self._event_loop = loop
        self._calls_max = calls_max
        self._calls: set[asyncio.Task[None]] = set()
        self._methods: dict[str, Handler] = {}
        self._otherwise = otherwise

    def serve(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Serve methods by their names. Call it before the start."""
        paths = {f"/{service}/{name}": handler for name, handler in handlers.items()}
        self.add_registered_method_handlers(paths)
        self._methods.update(paths)

    def resolve_handler(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Return a call's handler to grpcio, which answers UNIMPLEMENTED when it is None."""
        return self._methods.get(details.method, self._otherwise)

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Task[None]:
        """Start accepting calls; the base class calls this for each registered method, and with None for all others."""
        return self._event_loop.create_task(self._accept(method))

    async def _accept(self, method: bytes | None) -> None:
        """Accept calls until the core raises an error, which the base class expects."""
        name = _NO_METHOD if method is None else method.decode()
        while True:
            state = await (self._request_call() if method is None else self._request_registered_call(method))
            self.accepted += 1
            exceeded = len(self._calls) >= self._calls_max
            work = cygrpc._handle_rpc(name, self, (), state, self._event_loop, exceeded)
            task = self._event_loop.create_task(cygrpc._schedule_rpc_coro(work, state, self._event_loop, name))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)


class GuardedServer(AioServer):
    """A `grpc.aio.Server` whose accept loop survives every request. Raises UnknownGrpcError for an unknown grpcio.

    `otherwise` serves all methods without a handler of their own; without it those are UNIMPLEMENTED.
    """

    def __init__(self, options: Iterable[tuple[str, int]], calls_max: int, otherwise: Handler | None = None) -> None:
        refuse_unknown_grpc()
        replace_batches()
        self._loop = cygrpc.get_working_loop()
        self._server = _Accepting(self._loop, tuple(options), calls_max, otherwise)

    @property
    def accepted(self) -> int:
        """How many calls have been accepted so far."""
        count: int = self._server.accepted
        return count

    def serve(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Serve methods of a service by their names. Call it before the start."""
        self._server.serve(service, handlers)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: object) -> None:
        """Do nothing: generated code also calls `add_registered_method_handlers` with the same methods."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        """Serve a generated service's methods; generated code calls this."""
        self._server.serve(service_name, method_handlers)


class Batch:
    """One batch in progress, whose memory grpcio frees even when it fails or its caller is cancelled (CM-99). `done` is
    what the caller awaits; cancelling it does not stop the batch.

    grpcio 1.85.1, the newest, frees the memory only when the awaiting coroutine resumes after a success (grpc/grpc
    issue 43360). A call that its client resets leaves 96 bytes or more, and these pieces keep the allocator from
    returning the pages between them: a node under an attack of resets grew by 6 MiB every 8 s, and never shrank.

    Here the batch itself acts as the future and the event loop for grpcio. When the core has finished the batch,
    grpcio's coroutine always resumes and frees the memory; only then does the caller get the result, or the failure.
    """

    __slots__ = ("_loop", "_work", "done")

    def __init__(
        self, execute: ExecuteBatch, call: Any, operations: tuple[Any, ...], loop: asyncio.AbstractEventLoop
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


def replace_batches() -> None:
    """Make every batch of this process run as a `Batch` from now on. Safe to repeat."""
    original: ExecuteBatch = getattr(cygrpc, EXECUTE_BATCH)
    if getattr(original, "frees_always", False):
        return

    def execute_batch(call: Any, operations: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        return Batch(original, call, operations, loop).done

    execute_batch.frees_always = True  # type: ignore[attr-defined]
    setattr(cygrpc, EXECUTE_BATCH, execute_batch)
