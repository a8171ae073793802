"""Runs the console's application on a socket until a signal ends it (CT-161), and ends connections whose clients keep
it waiting (CT-163)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sharegroups.console.app import Console

#: How long requests may take after a signal, in seconds; streams end at once.
GRACE_S: Final = 5
#: How many connections are open at a time; more are refused with 503.
CONNECTIONS_MAX: Final = 400
#: How long a client may take, in seconds: for the line and headers of a request, from the connection or the previous
#: response on; then for its body; and for taking what it was sent.
HEADERS_S: Final = 10.0
BODY_S: Final = 30.0
TAKING_S: Final = 30.0


class _Connection(H11Protocol):
    """Ends when its client takes too long. While the console makes a response or a stream goes on, it may stay open.

    uvicorn itself limits only how long a connection stays idle after a response.
    """

    _awaited_s = 0.0
    _awaiting: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        connected = transport.get_extra_info("socket")
        if connected is not None and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: for a peer that has vanished
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(TAKING_S * 1_000))
        self._await(HEADERS_S)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._awaiting, self._taking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_rest()

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self._await(HEADERS_S, begins=True)
        else:  # the next request was here already
            self._await_rest()

    def _await_rest(self) -> None:
        """Wait for what is missing of a request. If that is its headers, their time has begun before."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._await(BODY_S if self.cycle.more_body else 0.0)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self.loop.call_later(TAKING_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
        super().resume_writing()

    def _await(self, seconds: float, *, begins: bool = False) -> None:
        """Wait for the client for so long from now on; if it is waited for already, for no longer than before. 0: it
        has sent its request."""
        if seconds == self._awaited_s and not begins:
            return
        if self._awaiting is not None:
            self._awaiting.cancel()
        self._awaited_s = seconds
        self._awaiting = self.loop.call_later(seconds, self.transport.abort) if seconds else None


class _Server(uvicorn.Server):
    """Ends event streams when it is to end, since it waits for all responses."""

    def __init__(self, config: uvicorn.Config, console: Console, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._console, self._on_started = console, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.close_streams()
        await super().shutdown(sockets)


async def serve(
    console: Console, listener: socket.socket, tls: tuple[Path, Path] | None, started: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM, whose exception is raised afterwards. Raises OSError for a certificate that cannot
    be used."""
    config = uvicorn.Config(
        console.app,
        http=_Connection,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws="none",
        lifespan="on",
        loop="asyncio",
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    await _Server(config, console, started).serve(sockets=[listener])
