"""grpc.aio's server with an accept loop that no request can end (CM-84).

grpcio 1.85.1, the newest, decodes a call's path inside the loop that accepts calls. One byte that is not UTF-8 raises
there, the server shuts itself down, and no client is served any more. Here every served method is registered with
gRPC's core, which compares paths as bytes. A call of any other path is answered UNIMPLEMENTED without reading its path.

This replaces a part of grpcio that is not public. A server is created only if grpcio has the names needed here, else
the error names the release; `tests/attack/test_path_bytes.py` shows that this part is in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import grpc
from grpc._cython import cygrpc
from grpc.aio._server import Server as AioServer

from shard_runtime.rpc import grpc_batches

_NEEDED: Final = ("_handle_rpc", "_schedule_rpc_coro", "_RequestCallError", "AioServer", grpc_batches.REPLACED)
_NEEDED_OF_SERVER: Final = ("_make_request_call_future", "_request_call", "_request_registered_call")
#: A path that no service has: real ones begin with a slash.
_NO_METHOD: Final = ""

Handler = Any
Condition = Callable[[], bool]


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
        self._methods: dict[str, tuple[Handler, Condition | None]] = {}
        self._otherwise = otherwise

    def serve(self, service: str, handlers: Mapping[str, Handler], condition: Condition | None = None) -> None:
        """Serve methods by their names while `condition` holds. Call it before the start."""
        paths = {f"/{service}/{name}": handler for name, handler in handlers.items()}
        self.add_registered_method_handlers(paths)
        self._methods.update({path: (handler, condition) for path, handler in paths.items()})

    def resolve_handler(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Return a call's handler to grpcio, which answers UNIMPLEMENTED when it is None."""
        handler, condition = self._methods.get(details.method, (self._otherwise, None))
        return handler if condition is None or condition() else None

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
        grpc_batches.install()
        self._loop = cygrpc.get_working_loop()
        self._server = _Accepting(self._loop, tuple(options), calls_max, otherwise)

    @property
    def accepted(self) -> int:
        """How many calls have been accepted so far."""
        count: int = self._server.accepted
        return count

    def serve(self, service: str, handlers: Mapping[str, Handler], condition: Condition | None = None) -> None:
        """Serve methods of a service by their names while `condition` holds. Call it before the start."""
        self._server.serve(service, handlers, condition)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: object) -> None:
        """Do nothing: generated code also calls `add_registered_method_handlers` with the same methods."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        """Serve a generated service's methods; generated code calls this."""
        self._server.serve(service_name, method_handlers)
