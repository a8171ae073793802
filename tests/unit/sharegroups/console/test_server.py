"""Clients that keep the console waiting do not keep others out. Real sockets, short limits."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sharegroups.console import server
from sharegroups.console.app import Console, Options
from sharegroups.console.audit import AuditLog
from tests.support.fake_cluster.cluster import FakeCluster

GET = "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
FORM = "POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: 900\r\n\r\n"
HELD = 8
#: What holds a connection: nothing, headers or a form that come slowly, or a second request after a whole one.
BEGINNINGS = ("", "GET / HTTP/1.1\r\nX-Slow: ", FORM, GET.format("/static/icon.svg") + "GET / HT")
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _serve(folder: Path, use: Callable[[int], Awaitable[None]]) -> None:
    """Run a console, call `use(port)` beside it, and end it as Ctrl-C does."""

    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        port = listener.getsockname()[1]
        options = Options({"bootstrap.servers": "node0:9000"}, port, local="User:ANONYMOUS")
        started = asyncio.Event()
        serving = asyncio.create_task(
            server.serve(Console(options, AuditLog(folder / "audit.log")), listener, None, started.set)
        )
        try:
            async with asyncio.timeout(60):
                await started.wait()
                await use(port)
        finally:
            signal.raise_signal(signal.SIGINT)
            await serving

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever earlier tests have left
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(run())
    finally:
        signal.signal(signal.SIGINT, before)


async def _status(port: int, path: str) -> str:
    """Ask for a page over a new connection; return the status, "" if the connection ends without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET.format(path).encode())
    try:
        return (await reader.readline()).decode().partition(" ")[2][:3]
    except ConnectionError:
        return ""
    finally:
        writer.close()


async def _trickle(client: Client) -> None:
    """Send a byte now and then until the console ends the connection."""
    reader, writer = client
    with suppress(ConnectionError):
        while not reader.at_eof():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.02)
    writer.close()


@pytest.mark.rule("CT-163")
def test_clients_that_are_slow_do_not_keep_others_out(
    fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """All but one of the connections are held; without the limits this would not end."""
    monkeypatch.setattr(server, "CONNECTIONS_MAX", HELD + 2)
    monkeypatch.setattr(server, "HEADERS_S", 0.5)
    monkeypatch.setattr(server, "BODY_S", 0.5)

    async def use(port: int) -> None:
        page, events = await asyncio.open_connection("127.0.0.1", port)
        events.write(GET.format("/live?page=/nodes").encode())
        assert b"200" in await page.readline()
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(HELD)]
        for number, (_, writer) in enumerate(slow):
            writer.write(BEGINNINGS[number % len(BEGINNINGS)].encode())
        silent, *others = slow
        with suppress(ConnectionError):
            assert await silent[0].read() == b""
        silent[1].close()
        await asyncio.gather(*map(_trickle, others))
        assert await _status(port, "/topics") == "200"
        await page.readuntil(b"event: figures")
        assert not page.at_eof(), "a page that is open stays so"
        events.close()

    _serve(tmp_path, use)
    assert "Traceback" not in capfd.readouterr().err


def _takes(client: socket.socket, data: bytes) -> bool:
    """Send what the kernel takes; return False once the other end has left."""
    try:
        client.send(data)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return True


@pytest.mark.rule("CT-163")
def test_a_client_that_takes_nothing_is_left(
    fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TAKING_S", 0.2)

    async def use(port: int) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            client.connect(("127.0.0.1", port))
            client.setblocking(False)
            asked = GET.format("/static/console.css").encode() * 20
            while _takes(client, asked):  # noqa: ASYNC110 - only the kernel knows when the other end has gone
                await asyncio.sleep(0.005)

    _serve(tmp_path, use)
