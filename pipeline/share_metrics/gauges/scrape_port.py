"""The HTTP port at which Prometheus reads the gauges, with a bounded number of threads.

A connection that sends nothing for some seconds is closed; if there are too many, so is the oldest. So incomplete
requests can exhaust neither the memory nor the port.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CONNECTIONS_MAX: Final = 16
SILENCE_S: Final = 10.0


@contextlib.contextmanager
def scrape_port(registry: CollectorRegistry, host: str, port: int) -> Iterator[int]:
    """Serve the registry at /metrics inside the block. Yields the port in use. Raises OSError."""
    from prometheus_client import make_wsgi_app  # noqa: PLC0415 - needed only for serving gauges

    server = make_server(host, port, make_wsgi_app(registry), _Server, _Handler)
    thread = threading.Thread(target=server.serve_forever, name="gauges", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log scrapes."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection; if there are too many, end the oldest connection."""
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open))
            crowded = len(self._open) > CONNECTIONS_MAX
        if crowded:
            _end(oldest)
            with self._lock:
                self._open.pop(oldest, None)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log connections that break or send nothing."""


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
