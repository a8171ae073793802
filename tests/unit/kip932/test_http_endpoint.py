"""The endpoint for metrics and health: what it responds to, and what it closes without a response."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus

import pytest

from kip932.http_endpoint import CONNECTIONS_MAX, HttpEndpoint, Request, Response


@asynccontextmanager
async def serving(request_s: float = 60.0) -> AsyncIterator[int]:
    async def page(request: Request) -> Response:
        said = f"{request.query} {request.headers.get('accept', '')}"
        return Response(HTTPStatus.OK, said.encode(), headers={"X-More": "yes"})

    endpoint = HttpEndpoint({"/page": page}, request_s=request_s)
    try:
        yield await endpoint.open("127.0.0.1", 0)
    finally:
        await endpoint.close()


async def exchange(port: int, request: bytes) -> bytes:
    """Send the request and return the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await rest(reader)
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes until the other side closes; none if it closed before it had read the whole request."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.asyncio
async def test_a_page_is_served_with_what_the_request_asks_for() -> None:
    async with serving() as port:
        head, _, body = (await exchange(port, b"GET /page?a=1 HTTP/1.1\r\nAccept: x\r\n\r\n")).partition(b"\r\n\r\n")
        assert body == b"a=1 x"
        assert head.split(b"\r\n") == [
            b"HTTP/1.1 200 OK",
            b"Content-Type: text/plain; charset=utf-8",
            b"Content-Length: 5",
            b"Connection: close",
            b"X-More: yes",
        ]
        assert await exchange(port, b"HEAD /page?a=1 HTTP/1.1\r\nAccept: x\r\n\r\n") == head + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /other HTTP/1.1", b"404 Not Found", b"there is /page\n"),
        (b"GET //[ HTTP/1.1", b"404 Not Found", b"there is /page\n"),
        (b"POST /page HTTP/1.1", b"405 Method Not Allowed", b"GET or HEAD\n"),
        (b"\xff\x00", b"405 Method Not Allowed", b"GET or HEAD\n"),
    ],
)
@pytest.mark.asyncio
async def test_other_requests_are_refused_with_what_there_is(request_line: bytes, status: bytes, body: bytes) -> None:
    async with serving() as port:
        answer = await exchange(port, request_line + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert answer.endswith(b"\r\n\r\n" + body)


@pytest.mark.asyncio
async def test_a_request_without_an_end_is_closed_when_it_is_too_long_or_too_late() -> None:
    async with serving() as port:
        assert await exchange(port, b"x" * 100_000) == b""
    async with serving(request_s=0.01) as port:
        assert await exchange(port, b"GET /page HTTP/1.1\r\n") == b""


@pytest.mark.asyncio
async def test_the_oldest_unfinished_request_makes_room_for_another() -> None:
    async with serving() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        try:
            for _, writer in held:
                writer.write(b"GET /page HTTP/1.1\r\n")
            assert (await exchange(port, b"GET /page HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await rest(held[0][0]) == b"", "the oldest is closed"
            held[1][1].write(b"\r\n")
            assert (await rest(held[1][0])).startswith(b"HTTP/1.1 200"), "the next one is not"
        finally:
            for _, writer in held:
                writer.close()


@contextmanager
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


@pytest.mark.asyncio
async def test_a_port_that_is_taken_is_an_error_in_the_systems_words() -> None:
    endpoint = HttpEndpoint({})
    with taken() as port, pytest.raises(OSError, match=r"Address already in use$"):
        await endpoint.open("127.0.0.1", port)
    await endpoint.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_was_just_made_is_closed_with_the_endpoint(turns: int) -> None:
    endpoint = HttpEndpoint({}, request_s=60.0)
    port = await endpoint.open("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await endpoint.close()
        with suppress(ConnectionResetError):  # closed before it was accepted
            assert client.recv(1) == b""
