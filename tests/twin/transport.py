"""A Transport within one process: services by address, messages copied by serialisation, no sockets (P-12).

It follows gRPC's contract: bytes are copied, a handler is cancelled with its caller, and statuses are gRPC's. When an
address stops, its open calls and streams fail as UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from kip932.acls import ANONYMOUS
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, TransportError, TransportStatus
from shard_runtime.rpc.access import Access, Rights
from shard_runtime.rpc.binding import BoundMethod, CallContext, bind
from shard_runtime.rpc.budget import THROTTLE_MS
from shard_runtime.rpc.status import expected, failure_status

log = structlog.get_logger(__name__)

_STREAM_MESSAGES_MAX: Final = 1_024


class InMemoryNetwork:
    """All addresses of one process, or of one simulated cluster. `access`: its access control; None without it."""

    def __init__(self) -> None:
        self.access: Access | None = None
        self._nodes: dict[str, _Node] = {}
        self._connections = itertools.count(1)

    def serve(self, address: str, descriptor: ServiceDescriptor, service: object) -> None:
        """Serve at `address` the RPCs for which `service` has methods, in addition to those served there already."""
        node = self._nodes.setdefault(address, _Node())
        for bound in bind(descriptor, service):
            node.methods[bound.method.path] = bound

    def stop(self, address: str) -> None:
        """Stop serving at `address`; its open calls and streams fail."""
        node = self._nodes.pop(address, None)
        if node is not None:
            node.stop()

    def transport(
        self, peer: str = "127.0.0.1", principal: str | None = None, client_id: str = ""
    ) -> InMemoryTransport:
        """Return a transport with its own connections, whose calls come from the host `peer`."""
        return InMemoryTransport(self, peer, principal, client_id)

    def node(self, address: str) -> _Node | None:
        """Return the node at `address`; None if nothing is served there."""
        return self._nodes.get(address)

    def new_connection(self) -> str:
        """Return a new connection id."""
        return f"memory:{next(self._connections)}"


class _Node:
    def __init__(self) -> None:
        self.methods: dict[str, BoundMethod] = {}
        self.stopped = False
        self.calls: set[asyncio.Timeout] = set()
        self.streams: set[_Stream[Any, Any]] = set()

    def stop(self) -> None:
        self.stopped = True
        for scope in self.calls:
            scope.reschedule(asyncio.get_running_loop().time())
        for stream in list(self.streams):
            stream.abort(TransportStatus.UNAVAILABLE, "the node stopped")


class InMemoryTransport:
    """`Transport` over an `InMemoryNetwork`."""

    def __init__(self, network: InMemoryNetwork, peer: str, principal: str | None = None, client_id: str = "") -> None:
        self._network = network
        self._peer = peer
        self._principal = principal
        self._client_id = client_id
        self._connections: dict[str, str] = {}
        self._streams: set[_Stream[Any, Any]] = set()

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """Make one unary call, inside the caller's task."""
        node, bound = self._find(address, method)
        data = request.SerializeToString()
        until = asyncio.get_running_loop().time() + timeout_s
        context = self._context(address, bound, lambda: until - asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(timeout_s) as scope:
                node.calls.add(scope)
                try:
                    response: Message = await bound.handler(bound.parse(data), context)
                    return method.response_type.FromString(response.SerializeToString())
                finally:
                    node.calls.discard(scope)
        except TimeoutError:
            if scope.expired():
                status = TransportStatus.UNAVAILABLE if node.stopped else TransportStatus.DEADLINE_EXCEEDED
                raise TransportError(status, address, f"{method.name} not answered") from None
            raise _failure(address, method, TimeoutError("in the handler")) from None
        except TransportError as error:  # a call made by the handler failed
            raise _failure(address, method, error) from error
        except Exception as error:
            raise _failure(address, method, error) from error

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        """Open a duplex stream; its handler runs in a separate task."""
        node, bound = self._find(address, method)
        stream = _Stream(address, method, self._context(address, bound, lambda: None), self)
        for streams in (node.streams, self._streams):
            streams.add(stream)
            stream.on_end(streams.discard)
        stream.run(bound)
        return stream

    def leave(self, address: str, connection: str) -> None:
        """Use another connection from now on, unless that is so already."""
        if self._connections.get(address) == connection:
            del self._connections[address]

    async def close(self) -> None:
        """Close every stream."""
        for stream in list(self._streams):
            await stream.close()

    def _find(self, address: str, method: Method[Any, Any]) -> tuple[_Node, BoundMethod]:
        node = self._network.node(address)
        if node is None:
            raise TransportError(TransportStatus.UNAVAILABLE, address, "nothing listens there")
        bound = node.methods.get(method.path)
        if bound is None:
            raise TransportError(TransportStatus.UNIMPLEMENTED, address, f"{method.path} is not served")
        return node, bound

    def _context(self, address: str, bound: BoundMethod, remaining: Callable[[], float | None]) -> CallContext:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._network.new_connection()
        access, rights = self._network.access, None
        if access is not None:
            rights = Rights(access, self._principal or ANONYMOUS, self._peer, bound.needs)
        return CallContext(self._peer, connection, remaining, self._principal, self._client_id, rights=rights)


class _Stream(ClientStream[RequestT, ResponseT]):
    """Both ends of one stream: the client's is this object, the server's is `_ServerEnd`."""

    def __init__(
        self, address: str, method: Method[RequestT, ResponseT], context: CallContext, transport: InMemoryTransport
    ) -> None:
        self._address = address
        self._transport = transport
        self._method = method
        self._context = context
        self._up = _Pipe()
        self._down = _Pipe()
        self._ended = False
        self._failure: TransportError | None = None
        self._task: asyncio.Task[None] | None = None
        self._on_end: list[Callable[[_Stream[RequestT, ResponseT]], None]] = []

    def on_end(self, callback: Callable[[_Stream[RequestT, ResponseT]], None]) -> None:
        self._on_end.append(callback)

    def leave_connection(self) -> None:
        self._transport.leave(self._address, self._context.connection_id)

    def run(self, bound: BoundMethod) -> None:
        self._task = asyncio.get_running_loop().create_task(self._serve(bound))

    def abort(self, status: TransportStatus, why: str) -> None:
        self._end(TransportError(status, self._address, why))
        if self._task is not None:
            self._task.cancel()

    async def write(self, message: RequestT) -> None:
        if self._ended:
            raise self._failure or TransportError(TransportStatus.CANCELLED, self._address, "the stream has ended")
        await self._up.put(message.SerializeToString())

    async def read(self) -> ResponseT | None:
        data = await self._down.get()
        if data is not None:
            return self._method.response_type.FromString(data)
        if self._failure is not None:
            raise self._failure
        return None

    async def close(self) -> None:
        self.abort(TransportStatus.CANCELLED, "closed on this side")
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def _serve(self, bound: BoundMethod) -> None:
        failure: TransportError | None = None
        try:
            await bound.handler(_ServerEnd(bound, self._context, self._up, self._down))
        except Exception as error:
            failure = _failure(self._address, self._method, error)
        finally:
            self._end(failure)

    def _end(self, failure: TransportError | None) -> None:
        if not self._ended:
            self._failure = failure
            self._ended = True
            self._up.end()
            self._down.end()
            for callback in self._on_end:
                callback(self)


class _ServerEnd:
    __slots__ = ("_down", "_parse", "_up", "context")

    def __init__(self, bound: BoundMethod, context: CallContext, up: _Pipe, down: _Pipe) -> None:
        self.context = context
        self._parse = bound.parse
        self._up = up
        self._down = down

    async def read(self) -> Any:
        data = await self._up.get()
        return None if data is None else self._parse(data)

    async def write(self, message: Message) -> None:
        await self._down.put(message.SerializeToString())


class _Pipe:
    """A bounded queue that can end, for one reader."""

    __slots__ = ("_ended", "_items", "_reader", "_writers")

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()

    async def put(self, item: bytes) -> None:
        """Add an item: wait while the pipe is full; drop the item if the pipe has ended."""
        while len(self._items) >= _STREAM_MESSAGES_MAX and not self._ended:
            waiter = asyncio.get_running_loop().create_future()
            self._writers.append(waiter)
            await waiter
        self._items.append(item)
        self._wake(self._reader)

    async def get(self) -> bytes | None:
        """Return the next item; None if the pipe has ended and is empty."""
        while not self._items:
            if self._ended:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        if self._writers:
            self._wake(self._writers.popleft())
        return self._items.popleft()

    def end(self) -> None:
        """End the pipe: no more items are added."""
        self._ended = True
        for waiter in (self._reader, *self._writers):
            self._wake(waiter)
        self._writers.clear()

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _failure(address: str, method: Method[Any, Any], error: Exception) -> TransportError:
    if not expected(error):
        log.error("call_failed", method=method.path, exc_info=error)
    status, message = failure_status(error)
    return TransportError(status, address, message, THROTTLE_MS if status is TransportStatus.RESOURCE_EXHAUSTED else 0)
