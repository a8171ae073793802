"""Attacks with connections alone: the bytes that they send are not a call."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.attack.definition import Attack, Target, Who
from tests.support.dial import tcp

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CONNECTIONS: Final = 400


@contextlib.contextmanager
def held() -> Iterator[list[socket.socket]]:
    """Yield a list for connections, all of which are closed at the end, with or without an error."""
    connections: list[socket.socket] = []
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def listeners(target: Target) -> list[str]:
    """Return every address at which a node of the target accepts calls."""
    return [*target.clients.values(), *target.internal.values()]


def _garbage(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Send random bytes to every listener, alone and after HTTP/2's preface."""
    deadline, sent = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        for address in listeners(target):
            with contextlib.suppress(OSError), target.dial.connect(address) as connection:
                if rng.random() < 0.5:
                    connection.sendall(PREFACE)
                connection.sendall(rng.randbytes(rng.choice((1, 9, 100, 5_000))))
                sent += 1
                connection.settimeout(0.05)
                connection.recv(4096)
    return f"{sent} connections with garbage"


def _silent(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Open many connections to every listener, which send nothing, or half a preface."""
    with held() as connections:
        deadline = time.monotonic() + seconds
        for number in range(CONNECTIONS):
            for address in listeners(target):
                if time.monotonic() > deadline:  # with TLS, each of them is a handshake
                    break
                with contextlib.suppress(OSError):
                    connections.append(target.dial.connect(address))
                    connections[-1].sendall(PREFACE[: number % len(PREFACE)])
        opened = len(connections)
        time.sleep(max(0.0, deadline - time.monotonic()))
    return f"{opened} silent connections"


def _half_a_scrape(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    """Send requests that never end to the metrics port, along with complete ones, which must get a response."""
    scraped = 0
    with held() as connections:
        deadline = time.monotonic() + seconds
        for address in target.metrics.values():
            for _ in range(CONNECTIONS // 4):
                with contextlib.suppress(OSError):
                    connections.append(tcp(address))
                    connections[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        while time.monotonic() < deadline:
            for address in target.metrics.values():
                answer = scrape(address)
                assert answer.startswith(b"HTTP/1."), f"{address} answered a scrape with {answer[:80]!r}"
                assert b" 200 " in answer.split(b"\r\n", 1)[0], f"{address} answered {answer[:80]!r}"
                scraped += 1
            time.sleep(0.1)
    assert scraped, "no scrape got a response while others were unfinished"
    return f"{scraped} scrapes beside {CONNECTIONS // 4} unfinished ones for each node"


def scrape(address: str) -> bytes:
    """Return the whole response of a metrics port. Raises OSError."""
    with tcp(address) as connection:
        connection.settimeout(10.0)
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


CONNECTION_ATTACKS: Final = (
    Attack("garbage", "Random bytes to every listener, with and without HTTP/2's preface", _garbage, Who.STRANGER),
    Attack("silent-connections", "Hundreds of connections that say nothing", _silent, Who.STRANGER),
    Attack("half-a-scrape", "Requests to the metrics port that never end", _half_a_scrape, Who.STRANGER),
)
