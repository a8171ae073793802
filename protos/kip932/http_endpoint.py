"""A small HTTP endpoint for metrics and health, on the event loop.

A client has a bounded time to send its request and to read the response. When there are too many connections, the one
that has been open longest without a complete request is closed, so that unfinished requests cannot lock others out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

CONNECTIONS_MAX: Final = 16
REQUEST_S: Final = 5.0
ANSWER_S: Final = 30.0
_HEAD_BYTES_MAX: Final = 8 * 1024
#: How many responses are built at a time; each may hold a whole copy of its text.
_ANSWERS_MAX: Final = 2
#: The number of turns that the event loop needs to pass an accepted connection to `_connected`.
_ACCEPT_TURNS: Final = 3


class Request(NamedTuple):
    """A request: the part of its target after `?`, and its headers by name in lower case."""

    query: str
    headers: Mapping[str, str]


class Response(NamedTuple):
    """A response. `headers`: those besides Content-Type, Content-Length and Connection."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


Page = Callable[[Request], Awaitable[Response]]


class HttpEndpoint:
    """Serves pages, by path, to GET and HEAD. Call `open`, and `close` at the end."""

    def __init__(self, pages: Mapping[str, Page], *, request_s: float = REQUEST_S, answer_s: float = ANSWER_S) -> None:
        self._pages = pages
        self._request_s = request_s
        self._answer_s = answer_s
        self._server: asyncio.Server | None = None
        self._unrequested: dict[asyncio.StreamWriter, None] = {}
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering = asyncio.Semaphore(_ANSWERS_MAX)

    async def open(self, host: str, port: int) -> int:
        """Start listening and return the port in use. Raises OSError."""
        try:
            self._server = await asyncio.start_server(self._connected, host, port, limit=_HEAD_BYTES_MAX)
        except OSError as error:
            if error.errno is None or error.errno <= 0:  # the name has no address
                raise
            raise OSError(error.errno, os.strerror(error.errno)) from error  # callers name the address
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop serving and close all connections now."""
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener.fileno())
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        self._unrequested[writer] = None
        if len(self._open) > CONNECTIONS_MAX:
            silent = next(iter(self._unrequested))
            del self._unrequested[silent]
            self._open.discard(silent)
            silent.transport.abort()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._request_s):
                head = await reader.readuntil(b"\r\n\r\n")
            self._unrequested.pop(writer, None)
            async with asyncio.timeout(self._answer_s):
                async with self._answering:
                    answer = await self._answer(head)
                writer.transport.set_write_buffer_limits(high=0)
                writer.write(answer)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client left, was too slow, or does not speak HTTP: no response can reach it
        finally:
            writer.transport.abort()
            self._unrequested.pop(writer, None)
            self._open.discard(writer)

    async def _answer(self, head: bytes) -> bytes:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        method, target = (words[0], words[1]) if len(words) == 3 else ("", "")
        path, _, query = target.partition("?")
        if method not in {"GET", "HEAD"}:
            response = Response(HTTPStatus.METHOD_NOT_ALLOWED, b"GET or HEAD\n", headers={"Allow": "GET, HEAD"})
        elif path not in self._pages:
            response = Response(HTTPStatus.NOT_FOUND, f"there is {', '.join(self._pages)}\n".encode())
        else:
            pairs = (line.partition(":") for line in lines if ":" in line)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            response = await self._pages[path](Request(query, headers))
        return _head_of(response) + (b"" if method == "HEAD" else response.body)


def _head_of(response: Response) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        **response.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n{lines}\r\n".encode("latin-1")
