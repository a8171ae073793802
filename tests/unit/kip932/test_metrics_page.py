"""The page serves the metrics registry in the format that a request asks for."""

from __future__ import annotations

import asyncio
import gzip
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kip932.http_endpoint import HttpEndpoint
from kip932.metrics_page import metrics_pages
from shard_runtime.metrics.runtime import RuntimeMetrics


@pytest.mark.asyncio
async def test_the_page_serves_the_registry_as_it_is_asked_for() -> None:
    registry = CollectorRegistry()
    RuntimeMetrics(registry).meter("x").flushed(1, 1)
    endpoint = HttpEndpoint(metrics_pages(registry))
    port = await endpoint.open("127.0.0.1", 0)

    def read(path: str, **headers: str) -> tuple[str, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.headers["Content-Type"], answer.read()

    try:
        content_type, body = await asyncio.to_thread(read, "/metrics")
        assert body == generate_latest(registry)
        assert content_type.startswith("text/plain")
        _, packed = await asyncio.to_thread(read, "/metrics", **{"Accept-Encoding": "gzip"})
        assert gzip.decompress(packed) == body
        content_type, text = await asyncio.to_thread(read, "/metrics", Accept="application/openmetrics-text")
        assert content_type.startswith("application/openmetrics-text")
        assert text.endswith(b"# EOF\n")
        _, some = await asyncio.to_thread(read, "/metrics?name[]=sharegroups_stream_trims_total")
        samples = [line for line in some.splitlines() if not line.startswith(b"#")]
        assert {line.split(b"{")[0] for line in samples} == {b"sharegroups_stream_trims_total"}
    finally:
        await endpoint.close()
