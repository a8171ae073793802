"""The transport of one client, which sends a node no calls for as long as the node asked (CL-86, CM-92).

All unary calls go through it. Requests on streams are delayed by their senders (aio.leader_stream), which share its
`throttle`. It never retries: a refused call fails as retriable, and its caller decides which node to call next.
"""

from __future__ import annotations

import asyncio
import math

from kip932.errors import ThrottlingQuotaExceededError
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, Transport, TransportError, TransportStatus
from sharegroups.core.throttle import Throttle
from sharegroups.errors import IllegalStateError


class ThrottledTransport:
    """A `kip932.rpc.transport.Transport` around another one. `close` ends waiting calls, but closes no connection."""

    def __init__(self, transport: Transport) -> None:
        self.throttle = Throttle()
        self._transport = transport
        self._ended = asyncio.Event()

    async def call(
        self,
        address: str,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        wait_s: float = math.inf,
    ) -> ResponseT:
        """Make a unary call once the node wants requests again, or after `wait_s`; `timeout_s` includes that wait.

        Raises TransportError, with RESOURCE_EXHAUSTED when the node has no room for the call, or when `timeout_s` ends
        before the call may be sent. Raises IllegalStateError when the client is closed while the call waits.
        """
        left_s = min(self.left_s(address), wait_s)
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
        """Open a duplex stream without waiting, since opening one is not yet a request."""
        return await self._transport.open_stream(address, method)

    async def close(self) -> None:
        """End the waiting calls. The owner of the inner transport must close its connections."""
        self._ended.set()

    def told(self, address: str, throttle_ms: int) -> None:
        """Note that the node wants no requests for `throttle_ms`; 0 or less changes nothing."""
        if throttle_ms > 0:
            self.throttle.told(address, throttle_ms, _now_ms())

    def left_s(self, address: str) -> float:
        """Return how long the node still wants no requests, s; 0 when it may be sent one."""
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
