"""The HTTP port at which Prometheus reads the gauges, served by an event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from kip932.http_endpoint import HttpEndpoint

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

T = TypeVar("T")


@contextmanager
def scrape_port(registry: CollectorRegistry, host: str, port: int) -> Iterator[int]:
    """Serve the registry at /metrics inside the block. Yields the port in use. Raises OSError."""
    from kip932.metrics_page import metrics_pages  # noqa: PLC0415 - needed only for serving gauges

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="gauges", daemon=True)
    thread.start()

    def run(work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    endpoint = HttpEndpoint(metrics_pages(registry))
    try:
        yield run(endpoint.open(host, port))
    finally:
        run(endpoint.close())
        run(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
