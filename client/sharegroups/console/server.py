"""Runs the console's application on a socket until a signal ends it (CT-161)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn

from sharegroups.console.app import Console

#: How long requests may take after a signal, in seconds; streams end at once.
GRACE_S: Final = 5
#: How many connections are open at a time; more are refused with 503.
CONNECTIONS_MAX: Final = 400


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
