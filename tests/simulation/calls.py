"""Unary calls and duplex streams on a simulated connection, each with a client's and a server's end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
from google.protobuf.message import Message

from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, TransportError, TransportStatus
from shard_runtime.rpc.binding import BoundMethod
from shard_runtime.rpc.status import expected, failure_status
from tests.simulation.clock import SimTask, context_of
from tests.simulation.points import Point

if TYPE_CHECKING:
    from tests.simulation.network import Connection

log = structlog.get_logger(__name__)

#: The maximum number of unread messages in one direction of a stream; further writes wait.
STREAM_MESSAGES_MAX: Final = 1_024
#: The stream that a handler serves, as its connection's age names it; "" where connections have no age.
STREAM: ContextVar[str] = ContextVar("stream", default="")


class Running(Protocol):
    """A call or stream that runs on a connection."""

    def fail(self, status: TransportStatus, why: str) -> None:
        """Notify the client's end that the connection broke."""
        ...

    def abandoned(self) -> None:
        """Notify the server's end that its client is gone."""
        ...


class Call:
    """One unary call. A duplicate of it is served too, but its response is discarded."""

    def __init__(self, connection: Connection, method: Method[Any, Any], data: bytes, timeout_s: float) -> None:
        self._connection = connection
        self._network = connection.network
        self._method = method
        self._data = data
        self._timeout_s = timeout_s
        self._until_s = self._network.loop.time() + timeout_s
        self._answer = self._network.loop.create_future()
        self._handlers: list[SimTask] = []
        self._abandoned = False
        #: True when a response or failure has reached the caller; until then a caller that goes away must notify the
        #: server.
        self._caller_notified = False
        connection.running[self] = None

    @property
    def _address(self) -> str:
        return self._connection.served.address

    async def answer(self) -> bytes:
        """Send the request and wait for the response. Raises TransportError."""
        timer = self._network.loop.call_at(self._until_s, self._expire)
        for _ in range(2 if self._network.duplicate and self._network.rng.random() < self._network.duplicate else 1):
            if self._network.loses():
                self._lost()
            else:
                self._connection.up(self._arrive)
        try:
            data: bytes = await self._answer
            return data
        finally:
            timer.cancel()
            self._connection.running.pop(self, None)
            if not self._caller_notified and self._connection.open:
                self._connection.up(self.abandoned)
            self._connection.close_if_unused()

    def fail(self, status: TransportStatus, why: str) -> None:
        """Notify the caller that there will be no response."""
        self._caller_notified = True
        self._give_up(status, why)

    def _give_up(self, status: TransportStatus, why: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(TransportError(status, self._address, f"{self._method.name}: {why}"))

    def abandoned(self) -> None:
        """Notify the server that its caller is gone."""
        self._abandoned = True
        for handler in self._handlers:
            handler.cancel()

    def _expire(self) -> None:
        self._give_up(TransportStatus.DEADLINE_EXCEEDED, f"not answered within {self._timeout_s:.3f} s")

    def _lost(self) -> None:
        """Treat a message as lost: the caller either sees a broken connection at once, or just gets no response."""
        if self._network.rng.random() < 0.5:
            self._connection.down(lambda: self.fail(TransportStatus.UNAVAILABLE, "the connection broke"))

    # ---- at the server

    def _arrive(self) -> None:
        served = self._connection.served
        if not self._connection.open:
            return
        self._connection.reached()
        if not served.accepting:
            self._connection.down(lambda: self.fail(TransportStatus.UNAVAILABLE, "the server is shutting down"))
            return
        bound = served.methods.get(self._method.path)
        if bound is None:
            self._connection.down(lambda: self.fail(TransportStatus.UNIMPLEMENTED, "not served"))
            return
        task = self._network.loop.create_task(self._serve(bound), context=context_of(served.life))
        self._handlers.append(task)
        if self._abandoned:
            task.cancel()

    async def _serve(self, bound: BoundMethod) -> None:
        connection, network = self._connection, self._network
        context = connection.caller(bound.needs, lambda: self._until_s - network.loop.time())
        failure: tuple[TransportStatus, str] | None = None
        data = b""
        try:
            response: Message = await bound.handler(bound.parse(self._data), context)
            data = response.SerializeToString()
        except Exception as error:
            failure = _failure(bound.method, error)
        await _before_answer(connection)
        if not connection.open:
            return
        if network.loses():
            self._lost()
        elif failure is not None:
            status, why = failure
            connection.down(lambda: self.fail(status, why))
        else:
            connection.down(lambda: self._answered(data))

    def _answered(self, data: bytes) -> None:
        self._caller_notified = True
        if not self._answer.done():
            self._answer.set_result(data)


class Stream(ClientStream[RequestT, ResponseT]):
    """One duplex stream; this object is the client's end."""

    def __init__(self, connection: Connection, method: Method[RequestT, ResponseT]) -> None:
        self._connection = connection
        self._network = connection.network
        self._method = method
        self._up = _Lane(connection, up=True)
        self._down = _Lane(connection, up=False)
        self._failure: TransportError | None = None
        self._ended = False
        self._handler: SimTask | None = None
        connection.running[self] = None

    def begin(self) -> None:
        """Open the stream at the server."""
        self._up.send(self._arrive)

    async def write(self, message: RequestT) -> None:
        """Send one message. Raises TransportError if the stream has ended."""
        if self._ended:
            raise self._failure or self._error(TransportStatus.CANCELLED, "the stream has ended")
        await self._up.put(message.SerializeToString())

    async def read(self) -> ResponseT | None:
        """Return the next message; None if the server closed the stream normally. Raises TransportError if the stream
        broke."""
        data = await self._down.get()
        if data is not None:
            return self._method.response_type.FromString(data)
        if self._failure is not None:
            raise self._failure
        return None

    def leave_connection(self) -> None:
        """Let the transport connect again for later calls."""
        self._connection.leave()

    async def close(self) -> None:
        """End the stream from this side; the handler is cancelled when the server learns of it."""
        if not self._ended:
            self.fail(TransportStatus.CANCELLED, "closed on this side")
            if self._connection.open:
                self._up.send(self.abandoned)
            self._connection.close_if_unused()

    def fail(self, status: TransportStatus, why: str) -> None:
        """Notify the client that the stream broke; messages that have already arrived can still be read."""
        self._finish(self._error(status, why))

    def abandoned(self) -> None:
        """Notify the server that its client is gone."""
        self._up.end()
        if self._handler is not None:
            self._handler.cancel()

    def _finish(self, failure: TransportError | None) -> None:
        if not self._ended:
            self._ended = True
            self._failure = failure
            self._down.end()
            self._up.stop()
            self._connection.running.pop(self, None)

    def _error(self, status: TransportStatus, why: str) -> TransportError:
        return TransportError(status, self._connection.served.address, f"{self._method.name}: {why}")

    # ---- at the server

    def _arrive(self) -> None:
        connection = self._connection
        served = connection.served
        bound = served.methods.get(self._method.path)
        if not connection.open or self._ended:
            return
        connection.reached()
        if bound is None or not served.accepting:
            status = TransportStatus.UNIMPLEMENTED if bound is None else TransportStatus.UNAVAILABLE
            self._down.send(lambda: self.fail(status, "not served"))
            return
        if connection.age is not None and connection.age.refuses(self._method.name):
            self._down.send(lambda: self.fail(TransportStatus.RESOURCE_EXHAUSTED, "too many connections"))
            return
        self._handler = self._network.loop.create_task(self._serve(bound), context=context_of(served.life))

    async def _serve(self, bound: BoundMethod) -> None:
        failure: tuple[TransportStatus, str] | None = None
        try:
            await bound.handler(_ServerEnd(bound, self._connection, self._up, self._down))
        except Exception as error:
            failure = _failure(bound.method, error)
        if self._connection.open:
            end = None if failure is None else self._error(*failure)
            self._down.send(lambda: self._finish(end))


class _ServerEnd:
    """`ServerStream`."""

    __slots__ = ("_connection", "_down", "_method", "_name", "_parse", "_up", "context")

    def __init__(self, bound: BoundMethod, connection: Connection, up: _Lane, down: _Lane) -> None:
        self.context = connection.caller(bound.needs, lambda: None)
        self._connection = connection
        self._parse = bound.parse
        self._method = bound.method.name
        self._up = up
        self._down = down
        self._name = "" if connection.age is None else connection.age.next_stream()
        STREAM.set(self._name)

    async def read(self) -> Any:
        data = await self._up.get()
        return None if data is None else self._parse(data)

    async def write(self, message: Message) -> None:
        data = message.SerializeToString()
        age = self._connection.age
        if age is not None and getattr(message, "move", False):
            age.asked(self._name, self._method)
        await _before_answer(self._connection)
        await self._down.put(data)


class _Slot:
    """One delivery in transit through a lane."""

    __slots__ = ("come", "deliver")

    def __init__(self, deliver: Callable[[], None]) -> None:
        self.deliver = deliver
        self.come = False


class _Lane:
    """One direction of a stream: messages arrive in order, at one reader; a lost message breaks the connection."""

    __slots__ = (
        "_arrived",
        "_connection",
        "_due_s",
        "_ended",
        "_reader",
        "_send",
        "_stopped",
        "_under_way",
        "_unread",
        "_writers",
    )

    def __init__(self, connection: Connection, *, up: bool) -> None:
        self._connection = connection
        self._send = connection.up if up else connection.down
        self._due_s = 0.0
        self._under_way: deque[_Slot] = deque()
        self._unread = 0
        self._arrived: deque[bytes] = deque()
        self._ended = False
        self._stopped = False
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()

    def send(self, deliver: Callable[[], None]) -> None:
        """Send something through the lane; it arrives after everything sent before, including what a cut still holds
        back."""
        slot = _Slot(deliver)
        self._under_way.append(slot)
        self._due_s = self._send(partial(self._come, slot), self._due_s)

    def _come(self, slot: _Slot) -> None:
        slot.come = True
        while self._under_way and self._under_way[0].come:
            self._under_way.popleft().deliver()

    async def put(self, data: bytes) -> None:
        """Send one message; wait while too many are unread, drop it if the stream has ended."""
        while self._unread >= STREAM_MESSAGES_MAX and not self._stopped:
            waiter = self._connection.network.loop.create_future()
            self._writers.append(waiter)
            await waiter
        if self._stopped or not self._connection.open:
            return
        if self._connection.network.loses():
            self._connection.broken("connection reset by peer")
            return
        self._unread += 1
        self.send(partial(self._arrive, data))

    def _arrive(self, data: bytes) -> None:
        if not self._ended:
            self._arrived.append(data)
            _wake(self._reader)

    async def get(self) -> bytes | None:
        """Return the next message; None if the lane has ended and nothing is left."""
        while not self._arrived:
            if self._ended:
                return None
            self._reader = self._connection.network.loop.create_future()
            await self._reader
        self._unread -= 1
        if self._writers:
            _wake(self._writers.popleft())
        return self._arrived.popleft()

    def end(self) -> None:
        """Accept no more arrivals."""
        self._ended = True
        _wake(self._reader)
        self.stop()

    def stop(self) -> None:
        """Accept no more sends."""
        self._stopped = True
        while self._writers:
            _wake(self._writers.popleft())


async def _before_answer(connection: Connection) -> None:
    points, name = connection.network.points, connection.served.life.name
    if points.armed(name, Point.BEFORE_ANSWER):
        await points.reached(name, Point.BEFORE_ANSWER)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _failure(method: Method[Any, Any], error: Exception) -> tuple[TransportStatus, str]:
    if not expected(error):
        log.error("call_failed", method=method.path, exc_info=error)
    return failure_status(error)
