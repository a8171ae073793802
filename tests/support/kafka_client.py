"""A client of the Kafka listener for tests: it sends what it is given, and reads answers one by one."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Any

from kafka_listener.messages.apis import Api, api
from kafka_listener.messages.headers import read_response_head, request_head


def frame(name: str, version: int, request: Any = None, *, number: int = 1, client_id: str | None = "test") -> bytes:
    """Return a request's bytes, its size before them."""
    used = api(name)
    body = b"".join(used.encode_request(version, used.request() if request is None else request))
    data = request_head(used, version, number, client_id) + body
    return len(data).to_bytes(4, "big") + data


def answered(used: Api, version: int, data: bytes) -> tuple[int, Any]:
    """Read an answer: its correlation id and the response."""
    number, at = read_response_head(used, version, data)
    return number, used.decode_response(version, data, at)


class KafkaClient:
    """A connection to a listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._number = 0

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None, name: str = "localhost") -> KafkaClient:
        """Connect to a port of this machine."""
        server_name = name if tls is not None else None
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=server_name))

    async def __aenter__(self) -> KafkaClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()

    def send(self, name: str, version: int, request: Any = None) -> int:
        """Send a request; return its correlation id."""
        self._number += 1
        self.writer.write(frame(name, version, request, number=self._number))
        return self._number

    async def answer(self, name: str, version: int) -> tuple[int, Any]:
        """Read the next answer: its correlation id and the response. Raises IncompleteReadError when the connection
        was closed."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return answered(api(name), version, await self.reader.readexactly(size))

    async def ask(self, name: str, version: int, request: Any = None) -> Any:
        """Send a request, and return its response."""
        number = self.send(name, version, request)
        came, response = await self.answer(name, version)
        assert came == number
        return response

    async def closed(self) -> bytes:
        """Wait until the node has closed the connection; return what it sent before."""
        try:
            return await asyncio.wait_for(self.reader.read(), 10)
        except ConnectionError:
            return b""
