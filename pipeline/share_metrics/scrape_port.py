"""Where Prometheus reads the gauges: HTTP in threads, of which there are never more than a few.

A connection that says nothing for some seconds is closed, and of too many the oldest is: requests that are sent by
halves take up neither memory nor the port.
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
    """Serve the registry at /metrics meanwhile; the port in force. Raises OSError."""
    from prometheus_client import make_wsgi_app  # noqa: PLC0415 - only who serves gauges needs it

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
        """Nothing: a scrape is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection; the oldest one's ends if there are too many."""
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
        """The connection is done with."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: whoever goes away or says nothing need not be told of."""


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
