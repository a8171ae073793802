"""A node's HTTP endpoint `/metrics`. It runs on the event loop, so that no metric changes during collection.

Families are collected in one step of the loop, then encoded as text in a thread, so that many of them do not block the
loop. A client has a bounded time to send its request and to read the answer. When there are too many connections, the
one that has been open longest without a complete request is closed, so that unfinished requests cannot lock others out.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder

CONNECTIONS_MAX: Final = 32
REQUEST_S: Final = 10.0
ANSWER_S: Final = 30.0
_HEAD_BYTES_MAX: Final = 16 * 1024
#: How many answers are encoded and sent at a time; each holds a whole copy of the text.
_ANSWERS_MAX: Final = 2
_PATHS: Final = frozenset({"/", "/metrics"})


class MetricsEndpoint:
    """Serves a registry whose collectors belong to this event loop. Call `open`, and `close` at the end."""

    def __init__(
        self, registry: CollectorRegistry, *, request_s: float = REQUEST_S, answer_s: float = ANSWER_S
    ) -> None:
        self._registry = registry
        self._request_s = request_s
        self._answer_s = answer_s
        self._server: asyncio.Server | None = None
        self._unrequested: dict[asyncio.StreamWriter, None] = {}
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering = asyncio.Semaphore(_ANSWERS_MAX)

    async def open(self, host: str, port: int) -> int:
        """Start listening and return the port in use. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=_HEAD_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop serving and close all connections now."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._open.add(writer)
        self._unrequested[writer] = None
        if len(self._open) > CONNECTIONS_MAX:
            silent = next(iter(self._unrequested))
            del self._unrequested[silent]
            self._open.discard(silent)
            silent.transport.abort()
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
            pass  # the client left, was too slow, or does not speak HTTP: no answer can reach it
        finally:
            writer.transport.abort()
            self._unrequested.pop(writer, None)
            self._open.discard(writer)

    async def _answer(self, head: bytes) -> bytes:
        method, target, headers = _parsed(head)
        if method not in {"GET", "HEAD"}:
            return _response("405 Method Not Allowed", "text/plain", b"GET or HEAD /metrics\n", {"Allow": "GET, HEAD"})
        url = urlsplit(target)
        if url.path not in _PATHS:
            return _response("404 Not Found", "text/plain", b"the metrics are at /metrics\n")
        names = parse_qs(url.query).get("name[]")
        source = self._registry.restricted_registry(names) if names else self._registry
        families = list(source.collect())
        response = await asyncio.to_thread(_written, families, headers)
        return response if method == "GET" else response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


class _Collected(CollectorRegistry):
    """Presents families that are already collected as a registry, as an encoder expects."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _written(families: Iterable[Metric], headers: Mapping[str, str]) -> bytes:
    encode, content_type = choose_encoder(headers.get("accept", ""))
    body = encode(_Collected(families))
    if "gzip" in headers.get("accept-encoding", ""):
        return _response("200 OK", content_type, gzip.compress(body, 1), {"Content-Encoding": "gzip"})
    return _response("200 OK", content_type, body)


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return method, target and headers; the method is "" when the request line is not HTTP."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    method, target = (words[0], words[1]) if len(words) == 3 else ("", "")
    pairs = (line.partition(":") for line in lines if ":" in line)
    return method, target, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _response(status: str, content_type: str, body: bytes, also: Mapping[str, str] | None = None) -> bytes:
    headers = {"Content-Type": content_type, "Content-Length": str(len(body)), "Connection": "close", **(also or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body
