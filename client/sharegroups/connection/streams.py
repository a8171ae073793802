"""Requests and responses on one long-lived stream to a leader, matched by correlation number (P-4).

This module owns the stream, its writer and its reader: two tasks while the stream is open, and none per request. It
never retries: when the stream ends, every request without a response fails with TransportError. Requests hardly ever
time out, so one timer serves all requests of a stream. The timer also notifies the owner when a response is late, so
that the owner can find out whether another node leads now.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from google.protobuf.message import Message

from kip932.armed_timer import ArmedTimer
from kip932.rpc.transport import ClientStream, Method, Transport, TransportError, TransportStatus
from sharegroups.connection.silent_nodes import AGAIN_S

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
RequestT_co = TypeVar("RequestT_co", bound=Message, covariant=True)
ResponseT_contra = TypeVar("ResponseT_contra", bound=Message, contravariant=True)
OutcomeT = TypeVar("OutcomeT")

#: A timer may fire early by up to this much, in seconds.
_TICK_S: Final = 0.002


class Exchange(Protocol[RequestT_co, ResponseT_contra]):
    """A request and its outcome: the stream's tasks call either `answered` or `failed`, once.

    Neither is called if `make` returned None. Times count from the moment the request is written.
    """

    @property
    def timeout_s(self) -> float:
        """How long the response may take, in seconds; after that the stream ends."""
        ...

    @property
    def expected_s(self) -> float:
        """How long until the response is late, in seconds."""
        ...

    def make(self, number: int) -> RequestT_co | None:
        """Build the message; called when it is this request's turn to be written.

        Return None when the request is no longer wanted: nothing is sent, and the stream drops the request.
        """
        ...

    def answered(self, response: ResponseT_contra) -> None:
        """Receive the response."""
        ...

    def failed(self, error: Exception) -> None:
        """Receive the TransportError of a stream that ended before the response, or the error that `make` raised."""
        ...


class _Sent(Generic[RequestT, ResponseT]):
    """A request that was written. `check_s`: when to check it next; `until_s`: when it times out; both s of the loop's
    clock."""

    __slots__ = ("check_s", "exchange", "late", "until_s")

    def __init__(self, exchange: Exchange[RequestT, ResponseT], now_s: float) -> None:
        self.exchange = exchange
        self.until_s = now_s + exchange.timeout_s
        self.check_s = min(self.until_s, now_s + exchange.expected_s)
        self.late = False


class CorrelatedStream(Generic[RequestT, ResponseT]):
    """One open stream. Create it with `open`; end it with `close`.

    `on_late` is called when a response is late, and every second from then on until it arrives. `on_move` is called
    when the peer asks for a stream on another connection (CL-144); `must_move` is then True.
    """

    def __init__(
        self,
        stream: ClientStream[RequestT, ResponseT],
        address: str,
        on_late: Callable[[], None] | None = None,
        on_move: Callable[[], None] | None = None,
    ) -> None:
        self._stream = stream
        self._address = address
        self._on_late = on_late
        self._on_move = on_move
        self.must_move = False
        self._move_later: asyncio.TimerHandle | None = None
        #: Set while a caller waits until no request is in flight.
        self._quiet: asyncio.Future[None] | None = None
        self._queue: deque[Exchange[RequestT, ResponseT]] = deque()
        self._queued: asyncio.Future[None] | None = None
        self._sent: dict[int, _Sent[RequestT, ResponseT]] = {}
        self._next_id = 0
        self._timer = ArmedTimer(self._check)
        self._abort: asyncio.Task[None] | None = None
        self._lost: TransportError | None = None
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    @classmethod
    async def open(
        cls,
        transport: Transport,
        address: str,
        method: Method[RequestT, ResponseT],
        on_late: Callable[[], None] | None = None,
        on_move: Callable[[], None] | None = None,
    ) -> Self:
        """Open a stream. Raises TransportError when the peer cannot be reached at once."""
        return cls(await transport.open_stream(address, method), address, on_late, on_move)

    @property
    def is_lost(self) -> bool:
        """True when the stream has ended."""
        return self._lost is not None

    @property
    def failure(self) -> TransportError | None:
        """Why the stream has ended; None while it is open."""
        return self._lost

    @property
    def is_late(self) -> bool:
        """True when the response to a request is late."""
        return any(sent.late for sent in self._sent.values())

    def send(self, exchange: Exchange[RequestT, ResponseT]) -> None:
        """Queue a request for sending. Raises TransportError when the stream has ended.

        The stream calls `make` when it is this request's turn to be written, so `make` takes session epochs in the
        order of sending (CL-30).
        """
        if self._lost is not None:
            raise self._lost
        self._queue.append(exchange)
        if self._queued is not None and not self._queued.done():
            self._queued.set_result(None)

    async def request(
        self, make: Callable[[int], RequestT], timeout_s: float, expected_s: float | None = None
    ) -> ResponseT:
        """Send the message that `make` builds for a correlation number, and wait for its response.

        The response is late after `expected_s`; after `timeout_s` the stream ends. Raises TransportError when the
        stream ends, and the errors of `make`.
        """
        awaited: _Awaited[RequestT, ResponseT] = _Awaited(make, timeout_s, expected_s)
        self.send(awaited)
        try:
            return await awaited.answer
        finally:
            self._sent.pop(awaited.number, None)  # without a caller, a late answer must not end the stream
            self._note_quiet()

    async def quiet(self) -> None:
        """Wait until no request is queued or has no response, or the stream has ended; their time-outs bound this. One
        task at a time may wait."""
        while self._lost is None and (self._sent or self._queue):
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    def put_off_move(self, seconds: float) -> None:
        """Go on over this stream, and behave as if the peer asked to move only `seconds` from now (CL-144)."""
        self.must_move = False
        if self._lost is None and self._move_later is None:
            self._move_later = asyncio.get_running_loop().call_later(seconds, self._asked_to_move)

    def _asked_to_move(self) -> None:
        self._move_later = None
        self.must_move = True
        if self._on_move is not None:
            self._on_move()

    def leave_connection(self) -> None:
        """Let later streams and calls to this peer use a newer connection."""
        self._stream.leave_connection()

    def _note_quiet(self) -> None:
        if self._quiet is not None and not self._quiet.done() and not self._sent and not self._queue:
            self._quiet.set_result(None)

    def abandon(self, why: str) -> None:
        """End the stream even though it may still work, because its peer is silent and its responses are no longer
        needed."""
        self._give_up(TransportStatus.UNAVAILABLE, why)

    async def close(self) -> None:
        """End the stream from this side (PL-524)."""
        self._end(TransportError(TransportStatus.CANCELLED, self._address, "the stream was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *([self._abort] if self._abort else []), return_exceptions=True)
        await self._stream.close()

    async def _write(self) -> None:
        """Write queued requests, one message at a time, until the stream ends."""
        loop = asyncio.get_running_loop()
        while self._lost is None:
            if not self._queue:
                self._queued = loop.create_future()
                await self._queued
                continue
            message = self._next_message(loop.time())
            if message is None:
                self._note_quiet()
                continue
            try:
                await self._stream.write(message)
            except TransportError as error:
                self._end(error)
            except Exception as error:
                self._end(TransportError(TransportStatus.INTERNAL, self._address, repr(error)))

    def _next_message(self, now_s: float) -> RequestT | None:
        """Build the next message; its time-out starts now. Returns None if there is nothing to send."""
        exchange = self._queue.popleft()
        number = self._next_id = self._next_id + 1
        try:
            message = exchange.make(number)
        except Exception as error:
            _deliver(exchange.failed, error)
            return None
        if message is not None:
            sent = self._sent[number] = _Sent(exchange, now_s)
            if sent.check_s < self._timer.at:
                self._timer.arm(sent.check_s, sent.check_s - now_s)
        return message

    async def _read(self) -> None:
        try:
            while (message := await self._stream.read()) is not None:
                answer: Any = message  # the Message type does not know its fields
                sent = self._sent.pop(answer.correlation_id, None)
                if sent is not None:
                    _deliver(sent.exchange.answered, message)
                    self._note_quiet()
                elif answer.move and not self.must_move and self._move_later is None:
                    self._asked_to_move()
            self._end(TransportError(TransportStatus.UNAVAILABLE, self._address, "the peer closed the stream"))
        except TransportError as error:
            self._end(error)

    def _check(self) -> None:
        """Handle the timer: end the stream if a request has timed out, report late ones, then arm the timer again."""
        if not self._sent:
            return
        now_s = asyncio.get_running_loop().time() + _TICK_S
        first = min(self._sent.values(), key=_until)
        if first.until_s <= now_s:
            self._give_up(TransportStatus.DEADLINE_EXCEEDED, f"no answer in {first.exchange.timeout_s:g} s")
            return
        if self._note_late(now_s) and self._on_late is not None:
            self._on_late()
        if self._lost is None:
            next_s = min(sent.check_s for sent in self._sent.values())
            self._timer.arm(next_s, next_s - asyncio.get_running_loop().time())

    def _note_late(self, now_s: float) -> bool:
        late = [sent for sent in self._sent.values() if sent.check_s <= now_s]
        for sent in late:
            sent.late = True
            sent.check_s = min(now_s + AGAIN_S, sent.until_s)
        return bool(late)

    def _give_up(self, status: TransportStatus, why: str) -> None:
        if self._lost is None:
            self._end(TransportError(status, self._address, why))
            self._abort = asyncio.create_task(self._stream.close())  # this also ends a write blocked by the peer

    def _end(self, error: TransportError) -> None:
        """Mark the stream as ended. Its requests fail in the loop's next iteration, since an owner may end the stream
        during a call of its own."""
        if self._lost is not None:
            return
        self._lost = error
        self._timer.cancel()
        if self._move_later is not None:
            self._move_later.cancel()
        sent, self._sent = self._sent, {}
        waiting = [one.exchange for one in sent.values()] + list(self._queue)
        self._queue.clear()
        if self._queued is not None and not self._queued.done():
            self._queued.set_result(None)
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
        if waiting:
            asyncio.get_running_loop().call_soon(_fail_all, waiting, error)


class _Awaited(Generic[RequestT, ResponseT]):
    """The exchange of one `request` call."""

    __slots__ = ("_make", "answer", "expected_s", "number", "timeout_s")

    def __init__(self, make: Callable[[int], RequestT], timeout_s: float, expected_s: float | None) -> None:
        self._make = make
        self.timeout_s = timeout_s
        self.expected_s = timeout_s if expected_s is None else expected_s
        self.number = -1
        self.answer: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()

    def make(self, number: int) -> RequestT | None:
        self.number = number
        return None if self.answer.done() else self._make(number)

    def answered(self, response: ResponseT) -> None:
        if not self.answer.done():
            self.answer.set_result(response)

    def failed(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _fail_all(waiting: Sequence[Exchange[RequestT, ResponseT]], error: TransportError) -> None:
    for exchange in waiting:
        _deliver(exchange.failed, error)


def _deliver(receive: Callable[[OutcomeT], None], outcome: OutcomeT) -> None:
    try:
        receive(outcome)
    except Exception as error:  # an error in one request must not stop the reader, or leave others without an outcome
        context = {"message": "the outcome of a request could not be taken in", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def _until(sent: _Sent[RequestT, ResponseT]) -> float:
    return sent.until_s
