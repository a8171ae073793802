"""What operators see: metrics of hosts, the endpoint, the shape of a log line."""

from __future__ import annotations

import io
import json
import urllib.request

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from shard_runtime.host_options import HostState
from shard_runtime.logs import configure_logs
from shard_runtime.metrics import MetricsEndpoint, RuntimeMetrics


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


def test_the_endpoint_serves_the_registry() -> None:
    registry = CollectorRegistry()
    RuntimeMetrics(registry).meter("x").flushed(1, 1)
    endpoint = MetricsEndpoint(registry, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=5) as answer:
            assert answer.read() == generate_latest(registry)
    finally:
        endpoint.close()


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


@pytest.mark.rule("CM-61")
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
