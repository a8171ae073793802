"""Serves a worker's health port: /healthz, /readyz, and /metrics in Prometheus' text format (CL-127)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from kip932.http_endpoint import HttpEndpoint, Page, Request, Response
from sharegroups.worker.pools import WorkerError


@asynccontextmanager
async def health_port(
    host: str, port: int, healthy: Callable[[], bool], ready: Callable[[], bool], metrics: Callable[[], str]
) -> AsyncIterator[None]:
    """Serve inside the block. `healthy` and `ready` decide the status; `metrics` returns the text. Raises
    WorkerError."""

    async def metrics_page(_: Request) -> Response:
        return Response(HTTPStatus.OK, metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")

    endpoint = HttpEndpoint(
        {
            "/healthz": _page(healthy, "ok\n", "the worker's loop does not turn\n"),
            "/readyz": _page(ready, "ready\n", "not ready\n"),
            "/metrics": metrics_page,
        }
    )
    try:
        await endpoint.open(host, port)
    except OSError as error:
        raise WorkerError(f"the health port {host}:{port} cannot be opened: {error}") from error
    try:
        yield
    finally:
        await endpoint.close()


def _page(good: Callable[[], bool], yes: str, no: str) -> Page:
    async def page(_: Request) -> Response:
        if good():
            return Response(HTTPStatus.OK, yes.encode())
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, no.encode())

    return page
