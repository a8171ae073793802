"""The page /metrics of an HTTP endpoint, from a Prometheus registry whose collectors belong to the endpoint's loop.

Families are collected in one step of the loop, so that no metric changes meanwhile, then encoded in a thread, so that
many of them do not block the loop.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, Metric, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from kip932.http_endpoint import Page, Request, Response


def metrics_pages(registry: CollectorRegistry) -> Mapping[str, Page]:
    """Return the pages that serve the registry, in the format and with the metrics (`?name[]=…`) that a request asks
    for.

    From then on this process's counters and histograms have no series `_created`; prometheus_client otherwise adds one
    to each of them: Prometheus would store them all, and needs none of them.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations

    async def page(request: Request) -> Response:
        names = parse_qs(request.query).get("name[]")
        source = registry.restricted_registry(names) if names else registry
        return await asyncio.to_thread(_encoded, list(source.collect()), request.headers)

    return {"/": page, "/metrics": page}


class _Collected(CollectorRegistry):
    """Presents families that are already collected as a registry, as an encoder expects."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _encoded(families: Iterable[Metric], headers: Mapping[str, str]) -> Response:
    encode, content_type = choose_encoder(headers.get("accept", ""))
    body = encode(_Collected(families))
    if "gzip" not in headers.get("accept-encoding", ""):
        return Response(HTTPStatus.OK, body, content_type)
    return Response(HTTPStatus.OK, gzip.compress(body, 1), content_type, {"Content-Encoding": "gzip"})
