"""Prometheus metrics of the runtime, and the endpoint that serves them. Counted per batch, never per record (P-6).

Names are Kafka's (`share-coordinator-metrics`, `group-coordinator-metrics`) in snake_case; the label `service` tells
the roles of one process apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shard_runtime.host_options import HostState

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_RECORDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)


class RuntimeMetrics:
    """What hosts report, for all services of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        service = ["service"]
        self.flush_time = Histogram(
            "batch_flush_time_seconds",
            "Time of a flush until its commit.",
            service,
            buckets=_SECONDS,
            registry=registry,
        )
        self.flush_records = Histogram(
            "batch_flush_records", "Records of a flush.", service, buckets=_RECORDS, registry=registry
        )
        self.refused = Counter("batch_refused_records", "Records whose append was refused.", service, registry=registry)
        self.load_time = Histogram(
            "partition_load_time_seconds", "Time of a replay.", service, buckets=_SECONDS, registry=registry
        )
        self.unknown = Counter(
            "unknown_entries", "Entries of unknown types that a replay skipped.", service, registry=registry
        )
        self.trims = Counter("stream_trims", "Streams compacted.", service, registry=registry)

    def meter(self, service: str) -> ServiceMeter:
        """The `HostMeter` of one service."""
        return ServiceMeter(self, service)

    def watch_hosts(self, service: str, states: Callable[[], Iterable[HostState]], waiting: Callable[[], int]) -> None:
        """Count shards by state and waiting operations when they are asked for (GC-153, GC-156)."""
        self.registry.register(_Hosts(service, states, waiting))


class ServiceMeter:
    """`HostMeter` with the labels bound once."""

    def __init__(self, metrics: RuntimeMetrics, service: str) -> None:
        self._flush_time = metrics.flush_time.labels(service)
        self._flush_records = metrics.flush_records.labels(service)
        self._refused = metrics.refused.labels(service)
        self._load_time = metrics.load_time.labels(service)
        self._unknown = metrics.unknown.labels(service)
        self._trims = metrics.trims.labels(service)

    def flushed(self, records: int, elapsed_ms: int) -> None:
        """One flush was committed."""
        self._flush_time.observe(elapsed_ms / 1000)
        self._flush_records.observe(records)

    def refused(self, records: int) -> None:
        """One flush was refused."""
        self._refused.inc(records)

    def loaded(self, entries: int, unknown: int, elapsed_ms: int) -> None:
        """A log was replayed."""
        del entries
        self._load_time.observe(elapsed_ms / 1000)
        self._unknown.inc(unknown)

    def trimmed(self, entries_left: int) -> None:
        """A stream was compacted."""
        del entries_left
        self._trims.inc()


class _Hosts(Collector):
    def __init__(self, service: str, states: Callable[[], Iterable[HostState]], waiting: Callable[[], int]) -> None:
        self._service = service
        self._states = states
        self._waiting = waiting

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Kafka's `num-partitions` by state, and `event-queue-size`."""
        shards = GaugeMetricFamily("num_partitions", "Shards held, by state.", labels=["service", "state"])
        found = list(self._states())
        for state in (HostState.LOADING, HostState.ACTIVE, HostState.FAILED):
            shards.add_metric([self._service, state.value], found.count(state))
        yield shards
        queue = GaugeMetricFamily("event_queue_size", "Operations waiting for a commit.", labels=["service"])
        queue.add_metric([self._service], self._waiting())
        yield queue


class MetricsEndpoint:
    """The HTTP endpoint `/metrics`, in a thread of the client library's."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._server: WSGIServer
        self._server, self._thread = start_http_server(port, host, registry)

    @property
    def port(self) -> int:
        """The port in force."""
        return self._server.server_port

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


__all__ = ["Gauge", "MetricsEndpoint", "RuntimeMetrics", "ServiceMeter"]
