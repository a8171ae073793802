"""Serves a worker's health port: /healthz, /readyz, and /metrics in Prometheus' text format (CL-127)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from sharegroups.worker.pools import WorkerError

_READ_S: Final = 5.0
_HEAD_MAX: Final = 8_192


class Health:
    """Serves inside its `async with` block. `healthy` and `ready` decide the status; `metrics` returns the text."""

    def __init__(
        self, host: str, port: int, healthy: Callable[[], bool], ready: Callable[[], bool], metrics: Callable[[], str]
    ) -> None:
        self._host, self._port = host, port
        self._pages: dict[str, Callable[[], tuple[int, str]]] = {
            "/healthz": lambda: (200, "ok\n") if healthy() else (503, "the worker's loop does not turn\n"),
            "/readyz": lambda: (200, "ready\n") if ready() else (503, "not ready\n"),
            "/metrics": lambda: (200, metrics()),
        }
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._answer, self._host, self._port, limit=_HEAD_MAX)
        except OSError as error:
            raise WorkerError(f"the health port {self._host}:{self._port} cannot be opened: {error}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
            words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            path = words[1].split("?")[0] if len(words) > 1 else ""
            page = self._pages.get(path, lambda: (404, f"there is {', '.join(self._pages)}\n"))
            status, text = page()
            body = text.encode()
            names = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}
            head = (
                f"HTTP/1.1 {status} {names[status]}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            ).encode()
            writer.write(head if words[0] == "HEAD" else head + body)
            await writer.drain()
        writer.close()
