"""The transport of one client: it leaves a node alone for as long as the node asked (CL-86, CM-92).

All unary calls go through it. Requests on streams are held back by who sends them (aio.leader_stream), out of the same
book. It repeats nothing: a call that was refused fails as retriable, and its caller decides where to go next.
"""

from __future__ import annotations

import asyncio

from kip932.errors import ThrottlingQuotaExceededError
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, Transport, TransportError, TransportStatus
from sharegroups.core.throttle import Throttle
from sharegroups.errors import IllegalStateError


class ThrottledTransport:
    """`kip932.rpc.transport.Transport` over another one, which stays its owner's; `end` ends waits, not connections."""

    def __init__(self, transport: Transport) -> None:
        self.throttle = Throttle()
        self._transport = transport
        self._ended = asyncio.Event()

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """One unary call, not before the node's time is over; the wait counts into `timeout_s`.

        Raises TransportError: RESOURCE_EXHAUSTED when the node has no room for the call, or none before the time is
        over. Raises IllegalStateError when the client is closed while the call waits.
        """
        left_s = self.left_s(address)
        if left_s > 0:
            await self._wait(address, min(left_s, timeout_s))
            if left_s >= timeout_s:
                text = f"{method.name} was not sent: the node asked to be left alone for {left_s:.1f} s more"
                raise TransportError(TransportStatus.RESOURCE_EXHAUSTED, address, text)
        try:
            response = await self._transport.call(address, method, request, timeout_s - left_s)
        except TransportError as error:
            self.told(address, error.throttle_ms)
            raise
        throttle_ms = int(getattr(response, "throttle_time_ms", 0))
        self.told(address, throttle_ms)
        if getattr(response, "error_code", 0) == ThrottlingQuotaExceededError.code:
            text = getattr(response, "error_message", "") or f"the node has no room for {method.name} at present"
            raise TransportError(TransportStatus.RESOURCE_EXHAUSTED, address, text, throttle_ms)
        return response

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        """Open a duplex stream, at once: it asks for nothing yet."""
        return await self._transport.open_stream(address, method)

    async def close(self) -> None:
        """End what waits; the connections are the owner's to close."""
        self._ended.set()

    def told(self, address: str, throttle_ms: int) -> None:
        """A node has said for how long it wants no request."""
        if throttle_ms > 0:
            self.throttle.told(address, throttle_ms, _now_ms())

    def left_s(self, address: str) -> float:
        """For how long the node is still to be left alone, s; 0 when it may be asked."""
        until_ms = self.throttle.until_ms(address)
        return max(0, until_ms - _now_ms()) / 1000 if until_ms else 0.0

    async def _wait(self, address: str, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return
        raise IllegalStateError(f"the client was closed while it waited for {address}, which had no room")


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
