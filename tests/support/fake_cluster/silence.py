"""A network on which nodes fall silent, as a suspended process does: no connection breaks, and no response comes."""

from __future__ import annotations

import asyncio
from typing import Any

from kip932.rpc.transport import TransportError, TransportStatus
from tests.support.virtual_time import now_s
from tests.twin.transport import InMemoryNetwork, InMemoryTransport


class SilentTransport(InMemoryTransport):
    """Requests to `silent` nodes are lost, and their messages wait until they speak again; `slow` nodes receive what is
    sent over streams, but their messages wait too."""

    def __init__(self, network: InMemoryNetwork) -> None:
        super().__init__(network, "client")
        self.silent: set[str] = set()
        self.slow: set[str] = set()
        #: Calls and streams by address and method, with their times.
        self.asked: list[tuple[float, str, str]] = []
        self.closed: list[str] = []
        self._speaks = asyncio.Condition()

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        self.asked.append((now_s(), address, method.name))
        if address in self.silent:
            await asyncio.sleep(timeout_s)
            raise TransportError(TransportStatus.DEADLINE_EXCEEDED, address, f"{method.name} not answered")
        return await super().call(address, method, request, timeout_s)

    async def open_stream(self, address: str, method: Any) -> Any:
        return _SilentStream(self, address, await super().open_stream(address, method))

    async def speak(self, address: str) -> None:
        """Let the node respond again."""
        self.silent.discard(address)
        self.slow.discard(address)
        async with self._speaks:
            self._speaks.notify_all()

    async def spoken(self, address: str) -> None:
        async with self._speaks:
            await self._speaks.wait_for(lambda: address not in self.silent | self.slow)


class _SilentStream:
    def __init__(self, transport: SilentTransport, address: str, inner: Any) -> None:
        self._transport = transport
        self._address = address
        self._inner = inner

    async def write(self, message: Any) -> None:
        if self._address not in self._transport.silent:
            await self._inner.write(message)

    async def read(self) -> Any:
        message = await self._inner.read()
        await self._transport.spoken(self._address)
        return message

    def leave_connection(self) -> None:
        self._inner.leave_connection()

    async def close(self) -> None:
        self._transport.closed.append(self._address)
        await self._inner.close()
