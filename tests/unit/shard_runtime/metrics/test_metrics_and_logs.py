"""What operators see: metrics of hosts, the endpoint, the shape of a log line."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import urllib.request

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from shard_runtime.hosting.host_options import HostState
from shard_runtime.logs import configure_logs
from shard_runtime.metrics.endpoint import MetricsEndpoint
from shard_runtime.metrics.runtime import RuntimeMetrics


def test_hosts_are_counted_per_batch_and_by_state_at_scrape_time() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    states = [HostState.ACTIVE, HostState.ACTIVE, HostState.LOADING, HostState.IDLE]
    metrics.watch_hosts("group_coordinator", lambda: states, lambda: 3)
    meter = metrics.meter("group_coordinator")
    meter.flushed(5, 12)
    meter.refused(2)
    meter.loaded(100, 1, 40)
    meter.trimmed(7)
    service = {"service": "group_coordinator"}

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**service, **labels})

    assert value("num_partitions", state="active") == 2
    assert value("num_partitions", state="loading") == 1
    assert value("event_queue_size") == 3
    assert value("batch_flush_records_sum") == 5
    assert value("batch_flush_time_seconds_sum") == 0.012
    assert value("batch_refused_records_total") == 2
    assert value("unknown_entries_total") == 1
    assert value("stream_trims_total") == 1
    states.clear()
    assert value("num_partitions", state="active") == 0


def test_services_share_a_family() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    metrics.watch_hosts("group_coordinator", lambda: [HostState.FAILED], lambda: 3)
    metrics.watch_hosts("partition_leader", lambda: [])
    text = generate_latest(registry).decode()
    assert text.count("# TYPE num_partitions") == 1
    assert 'num_partitions{service="group_coordinator",state="failed"} 1.0' in text
    assert 'num_partitions{service="partition_leader",state="failed"} 0.0' in text
    assert text.count("\nevent_queue_size{") == 1


@pytest.mark.asyncio
async def test_the_endpoint_serves_the_registry_as_it_is_asked_for() -> None:
    registry = CollectorRegistry()
    RuntimeMetrics(registry).meter("x").flushed(1, 1)
    endpoint = MetricsEndpoint(registry)
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
        _, some = await asyncio.to_thread(read, "/metrics?name[]=stream_trims_total")
        samples = [line for line in some.splitlines() if not line.startswith(b"#")]
        assert {line.split(b"{")[0] for line in samples} == {b"stream_trims_total"}
    finally:
        await endpoint.close()


def test_a_log_line_is_json_when_nobody_watches_and_carries_its_context() -> None:
    out = io.StringIO()
    try:
        configure_logs("info", "auto", out)
        log = structlog.get_logger("a.test")
        with structlog.contextvars.bound_contextvars(group="g"):
            log.debug("hidden")
            log.warning("shard dropped", shard="{gc:7}")
    finally:
        structlog.reset_defaults()
    (line,) = out.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": "shard dropped", "level": "warning", "group": "g", "shard": "{gc:7}"}


def test_a_terminal_may_have_plain_lines() -> None:
    out = io.StringIO()
    try:
        configure_logs("debug", "console", out)
        structlog.get_logger("a.test").debug("seen")
    finally:
        structlog.reset_defaults()
    assert "seen" in out.getvalue()
    assert not out.getvalue().startswith("{")


@pytest.mark.rule("CM-61a")
def test_a_logged_exception_shows_no_values_of_variables() -> None:
    out = io.StringIO()
    configure_logs("info", "json", out)
    try:
        secret = "hunter" + "2"
        raise ValueError(len(secret))
    except ValueError:
        structlog.get_logger().exception("failed")
    finally:
        structlog.reset_defaults()
    assert "ValueError" in out.getvalue()
    assert "hunter2" not in out.getvalue()
