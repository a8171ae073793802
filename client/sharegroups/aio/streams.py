"""Requests and answers over one long-lived stream to a leader, matched by correlation number (P-4).

It owns the stream and its reader. It never retries: when the stream ends, every request without an answer fails with
TransportError and the owner is told once. One timer watches over all requests of a stream, since hardly any ever ends
by it; it also tells the owner when an answer is late, so that the owner may look whether somebody else leads by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Self, TypeVar

from google.protobuf.message import Message

from kip932.rpc.transport import ClientStream, Method, Transport, TransportError, TransportStatus
from sharegroups.aio.patience import AGAIN_S

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

#: Timers come as early as this.
_TICK_S: Final = 0.002


class _Limit(NamedTuple):
    """One request's times by the loop's clock, s: when to look at it next, and when it ends, after how long."""

    look: float
    until: float
    timeout_s: float


class CorrelatedStream(Generic[RequestT, ResponseT]):
    """One open stream. Make it with `open`; end it with `close`.

    `on_late` is called when an answer is late, and each second from then on until it has come.
    """

    def __init__(
        self, stream: ClientStream[RequestT, ResponseT], address: str, on_late: Callable[[], None] | None = None
    ) -> None:
        self._stream = stream
        self._address = address
        self._on_late = on_late
        self._order = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[ResponseT]] = {}
        self._next_id = 0
        self._limits: dict[int, _Limit] = {}
        self._late: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._abort: asyncio.Task[None] | None = None
        self._lost: TransportError | None = None
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls,
        transport: Transport,
        address: str,
        method: Method[RequestT, ResponseT],
        on_late: Callable[[], None] | None = None,
    ) -> Self:
        """Open a stream. Raises TransportError when the peer cannot be reached at once."""
        return cls(await transport.open_stream(address, method), address, on_late)

    @property
    def is_lost(self) -> bool:
        """Whether the stream has ended."""
        return self._lost is not None

    @property
    def is_late(self) -> bool:
        """Whether a request waits that should have been answered by now."""
        return bool(self._late)

    async def request(
        self, make: Callable[[int], RequestT], timeout_s: float, expected_s: float | None = None
    ) -> ResponseT:
        """Send what `make` builds for a correlation number, and wait for the answer, which is late past `expected_s`.

        `make` runs when it is this request's turn to be written, so numbers it hands out are in sending order (CL-30).
        Raises TransportError when the stream ends or the answer does not come in time; both end the stream.
        """
        number = -1
        try:
            async with self._order:
                if self._lost is not None:
                    raise self._lost
                self._next_id += 1
                number = self._next_id
                loop = asyncio.get_running_loop()
                answer: asyncio.Future[ResponseT] = loop.create_future()
                self._waiting[number] = answer
                answer.add_done_callback(_seen)
                self._limit(number, loop.time(), timeout_s, timeout_s if expected_s is None else expected_s)
                await self._stream.write(make(number))
            return await answer
        except TransportError as error:
            self._end(error)
            raise self._lost or error from None
        finally:
            self._waiting.pop(number, None)
            self._limits.pop(number, None)
            self._late.discard(number)

    def abandon(self, why: str) -> None:
        """End the stream though it may live: the peer is silent, and nobody needs its answers any more."""
        self._give_up(TransportStatus.UNAVAILABLE, why)

    async def close(self) -> None:
        """End the stream from this side (PL-524)."""
        self._end(TransportError(TransportStatus.CANCELLED, self._address, "the stream was closed"))
        self._reader.cancel()
        await asyncio.gather(self._reader, *([self._abort] if self._abort else []), return_exceptions=True)
        await self._stream.close()

    async def _read(self) -> None:
        try:
            while (message := await self._stream.read()) is not None:
                answer = self._waiting.pop(_number(message), None)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            self._end(TransportError(TransportStatus.UNAVAILABLE, self._address, "the peer closed the stream"))
        except TransportError as error:
            self._end(error)

    def _limit(self, number: int, now_s: float, timeout_s: float, expected_s: float) -> None:
        """Have the timer look no later than at this request's expected end."""
        look = now_s + min(expected_s, timeout_s)
        self._limits[number] = _Limit(look, now_s + timeout_s, timeout_s)
        if self._timer is None or look < self._timer_at:
            self._arm(look)

    def _arm(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = until
        self._timer = asyncio.get_running_loop().call_at(until, self._look)

    def _look(self) -> None:
        """The timer: a request out of time ends the stream, a late one is told; else wait for the next to look at."""
        self._timer = None
        if not self._limits:
            return
        now_s = asyncio.get_running_loop().time() + _TICK_S
        until, timeout_s = min(limit[1:] for limit in self._limits.values())
        if until <= now_s:
            self._give_up(TransportStatus.DEADLINE_EXCEEDED, f"no answer in {timeout_s:g} s")
            return
        if self._note_late(now_s) and self._on_late is not None:
            self._on_late()
        if self._lost is None:
            self._arm(min(limit.look for limit in self._limits.values()))

    def _note_late(self, now_s: float) -> bool:
        late = [number for number, limit in self._limits.items() if limit.look <= now_s]
        for number in late:
            limit = self._limits[number]
            self._limits[number] = limit._replace(look=min(now_s + AGAIN_S, limit.until))
        self._late.update(late)
        return bool(late)

    def _give_up(self, status: TransportStatus, why: str) -> None:
        if self._lost is None:
            self._end(TransportError(status, self._address, why))
            self._abort = asyncio.create_task(self._stream.close())  # a write that the peer holds up ends by that

    def _end(self, error: TransportError) -> None:
        if self._lost is None:
            self._lost = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)


def _seen(answer: asyncio.Future[ResponseT]) -> None:
    """A request whose write failed awaits no answer: its error is not one that nobody looked at."""
    if not answer.cancelled():
        answer.exception()


def _number(message: Message) -> int:
    number: int = getattr(message, "correlation_id")  # noqa: B009 - the Message type does not know its fields
    return number
