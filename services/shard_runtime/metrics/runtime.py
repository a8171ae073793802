"""Prometheus metrics of the runtime, counted per batch, never per record (P-6).

The label `service` distinguishes the roles of one process. docs/reference/kafka-names.md has Kafka's names for them.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric

from shard_runtime.hosting.host_options import HostMeter, HostState
from shard_runtime.metrics.families import ComputedMetrics, counter, gauge
from shard_runtime.record_log.protocol import ShardKind
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.authentication import Authentication
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.quotas import KINDS, ClientQuotas
from shard_runtime.rpc.server import RpcServer

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_RECORDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)


_Number = Callable[[], int] | None


class RuntimeMetrics:
    """The metrics that hosts report, for all services of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        service = ["service"]
        self.flush_time = Histogram(
            "sharegroups_batch_flush_time_seconds",
            "Time of a flush until its commit, of records or of a coordinator's entries.",
            service,
            buckets=_SECONDS,
            registry=registry,
        )
        self.flush_records = Histogram(
            "sharegroups_batch_flush_records", "Records of a flush.", service, buckets=_RECORDS, registry=registry
        )
        self.refused = Counter(
            "sharegroups_batch_refused_records_total", "Records whose append was refused.", service, registry=registry
        )
        self.load_time = Histogram(
            "sharegroups_shard_load_time_seconds", "Time of a replay.", service, buckets=_SECONDS, registry=registry
        )
        self.unknown = Counter(
            "sharegroups_unknown_entries_total",
            "Entries of unknown types that a replay skipped.",
            service,
            registry=registry,
        )
        self._hosts = _Hosts()
        registry.register(self._hosts)
        self.damaged = Counter(
            "sharegroups_damaged_entries_total",
            "Stored entries found damaged, by the kind of their stream.",
            ["kind"],
            registry=registry,
        )
        for kind in (*(kind.value for kind in ShardKind), "meta"):
            self.damaged.labels(kind)  # begin at 0: a rate over a series that begins at 1 misses the first entry
        self.trims = Counter("sharegroups_stream_trims_total", "Streams compacted.", service, registry=registry)

    def damage_found(self, stream: str) -> None:
        """Count a damaged entry of a stream (CM-101); pass this to `DamageNotes.count`."""
        self.damaged.labels(stream[1 : stream.index("}")].partition(":")[0]).inc()

    def meter(self, service: str) -> ServiceMeter:
        """Return the `HostMeter` of one service."""
        return ServiceMeter(self, service)

    def watch_hosts(
        self,
        service: str,
        states: Callable[[], Iterable[HostState]],
        waiting: Callable[[], int] | None = None,
        quarantined: Callable[[], int] | None = None,
    ) -> None:
        """Export a service's shards by state and, when given, its waiting operations and its entries in quarantine.
        All are counted when the metrics are collected (GC-153, GC-156, CM-107)."""
        self._hosts.watch(service, states, waiting, quarantined)


class ServiceMeter(HostMeter):
    """The counts of one service, with its labels bound once."""

    def __init__(self, metrics: RuntimeMetrics, service: str) -> None:
        self._flush_time = metrics.flush_time.labels(service)
        self._flush_records = metrics.flush_records.labels(service)
        self._refused = metrics.refused.labels(service)
        self._load_time = metrics.load_time.labels(service)
        self._unknown = metrics.unknown.labels(service)
        self._trims = metrics.trims.labels(service)

    def flushed(self, records: int, elapsed_ms: int) -> None:
        """Count a committed flush."""
        self._flush_time.observe(elapsed_ms / 1000)
        self._flush_records.observe(records)

    def refused(self, records: int) -> None:
        """Count the records of a refused flush."""
        self._refused.inc(records)

    def loaded(self, entries: int, unknown: int, elapsed_ms: int) -> None:
        """Count a replay of a log."""
        del entries
        self._load_time.observe(elapsed_ms / 1000)
        self._unknown.inc(unknown)

    def trimmed(self, entries_left: int) -> None:
        """Count a compaction of a stream."""
        del entries_left
        self._trims.inc()


class _Hosts(ComputedMetrics):
    """One collector for all services, since a family may come from one collector only."""

    shards = gauge("sharegroups_shards", "Shards held, by state.", "service", "state")
    queue = gauge("sharegroups_event_queue_size", "Operations waiting for a commit.", "service")
    quarantine = gauge(
        "sharegroups_quarantined_entries",
        "Damaged entries of served shards that wait for an operator, by service.",
        "service",
    )

    def __init__(self) -> None:
        self._watched: dict[str, tuple[Callable[[], Iterable[HostState]], _Number, _Number]] = {}

    def watch(
        self, service: str, states: Callable[[], Iterable[HostState]], waiting: _Number, quarantined: _Number
    ) -> None:
        """Include this service."""
        self._watched[service] = states, waiting, quarantined

    def collect(self) -> Iterable[Metric]:
        """Return Kafka's `num-partitions` by state, `event-queue-size`, and the number of quarantined entries."""
        shards, queue, quarantine = self.shards.empty(), self.queue.empty(), self.quarantine.empty()
        for service, (states, waiting, quarantined) in self._watched.items():
            found = Counts(states())
            for state in (HostState.LOADING, HostState.ACTIVE, HostState.FAILED):
                shards.add_metric([service, state.value], found[state])
            if waiting is not None:
                queue.add_metric([service], waiting())
            if quarantined is not None:
                quarantine.add_metric([service], quarantined())
        return [shards, queue, quarantine]


class CertificateMetrics(ComputedMetrics):
    """The certificates of a node with TLS (CM-60)."""

    ends_at = gauge(
        "sharegroups_certificate_expiry_timestamp_seconds",
        "When this node's certificate expires; seconds since 1970.",
    )
    failures = counter(
        "sharegroups_certificate_reload_failures_total", "Changed certificate files that could not be used."
    )

    def __init__(self, certificates: NodeCertificates) -> None:
        self._certificates = certificates

    def collect(self) -> Iterable[Metric]:
        """Yield the end of the certificate and the failures."""
        yield self.ends_at.of(self._certificates.current.ends_at.timestamp())
        yield self.failures.of(self._certificates.failures)


class AccessMetrics(ComputedMetrics):
    """The refusals of a node with access control (CM-61)."""

    refused = counter(
        "sharegroups_access_refusals_total",
        "Calls, or parts of calls, refused to their callers, by how these are known; node: at the port for nodes.",
        "kind",
        "operation",
        "resource",
    )

    def __init__(self, access: Access) -> None:
        self._access = access

    def collect(self) -> Iterable[Metric]:
        """Yield the refusals by kind of caller, operation and type of resource."""
        family = self.refused.empty()
        for (kind, operation, resource), number in sorted(self._access.refused.items()):
            family.add_metric((kind, operation.name, resource.name), number)
        yield family


class QuotaMetrics(ComputedMetrics):
    """How the quotas of clients limit them at this node (CM-192)."""

    throttled = counter(
        "sharegroups_quota_throttled_requests_total", "Requests that waited, or whose callers were asked to.", "kind"
    )
    seconds = counter(
        "sharegroups_quota_throttle_seconds_total", "How long they waited, or their callers were asked to.", "kind"
    )
    tracked = gauge(
        "sharegroups_quota_tracked_callers", "Users, client ids and pairs of both whose use of a quota is known."
    )

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterable[Metric]:
        """Yield the throttled requests and their times by kind, and the callers known."""
        throttled, seconds = self.throttled.empty(), self.seconds.empty()
        for key, kind in KINDS.items():
            throttled.add_metric([kind], self._quotas.throttled[key])
            seconds.add_metric([kind], self._quotas.throttled_ms[key] / 1000)
        return [throttled, seconds, self.tracked.of(self._quotas.tracked)]


class CallMemory(ComputedMetrics):
    """The memory that calls use, read when the metrics are collected (CM-92, CM-93)."""

    in_flight = gauge("sharegroups_rpc_in_flight_bytes", "Bytes of requests and answers in flight.")
    bound = gauge("sharegroups_rpc_in_flight_limit_bytes", "The bound of sharegroups_rpc_in_flight_bytes.")
    unfinished = gauge("sharegroups_rpc_unfinished_bytes", "Bytes received of messages that are not whole.")
    throttled = counter("sharegroups_rpc_throttled_calls_total", "Calls that were asked to come again later.")
    connections = gauge(
        "sharegroups_rpc_connections", "Connections at the ports for clients, counted every 5 s or more often."
    )
    cut = counter("sharegroups_rpc_connections_cut_total", "Connections cut for their unfinished messages.")

    def __init__(self, server: RpcServer) -> None:
        self._server = server

    def collect(self) -> Iterable[Metric]:
        """Yield the bytes in flight and of unfinished messages, calls throttled, connections, and those cut."""
        server = self._server
        yield self.in_flight.of(server.budget.used_bytes)
        yield self.bound.of(server.budget.total_bytes)
        yield self.unfinished.of(server.unfinished.unfinished_bytes)
        yield self.throttled.of(server.throttled)
        yield self.connections.of(server.unfinished.connections)
        yield self.cut.of(server.connections_cut)


class AuthenticationMetrics(ComputedMetrics):
    """The callers of a node whose credentials or certificates were not accepted (CM-186)."""

    refused = counter(
        "sharegroups_authentication_failures_total",
        "Calls and streams refused because the caller was not known.",
        "kind",
        "reason",
    )
    unusable = counter(
        "sharegroups_credentials_reload_failures_total", "Changed keys or tokens that could not be used.", "what"
    )

    def __init__(self, ports: Sequence[Authentication]) -> None:
        self._ports = ports

    def collect(self) -> Iterable[Metric]:
        """Yield the refusals by kind of credentials and reason, and the failures to read keys and tokens."""
        refused, unusable = self.refused.empty(), self.unusable.empty()
        counts = sum((port.failures for port in self._ports), Counts[tuple[str, str]]())
        for labels, number in sorted(counts.items()):
            refused.add_metric(labels, number)
        for source in (source for port in self._ports for source in port.sources):
            unusable.add_metric((source.what,), source.failures)
        yield refused
        yield unusable
