"""Metrics of the partition leader, with Kafka's names in snake_case; counted per batch or computed when asked (P-6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kip932.ids import TopicIdPartition, topic_id_text
from partition_leader.core.session import SessionCache
from partition_leader.core.status import DropReason
from partition_leader.share_partition_host import LedPartition
from partition_leader.share_partitions import SharePartitions
from partition_leader.topic_log_load import LoadReport


class Led(Protocol):
    """The partitions led by this process."""

    def led(self) -> dict[TopicIdPartition, LedPartition]:
        """Every partition led now."""
        ...


class PartitionLeaderMetrics:
    """What topic logs report, and gauges over sessions and share-partitions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._batches = Counter("topic_log_batches", "Record batches appended.", registry=registry)
        self._records = Counter("topic_log_records", "Records appended.", registry=registry)
        self._bytes = Counter("topic_log_bytes", "Bytes of record batches appended.", registry=registry)
        self._loads = Counter("topic_log_loads", "Topic logs loaded after a claim.", registry=registry)
        self._jumps = Counter(
            "topic_log_end_jumps", "Loads that moved the log end up because a tail may be lost.", registry=registry
        )
        self._raised = Counter(
            "topic_log_end_raised_offsets",
            "Offsets a log end was raised by for share-partition state.",
            registry=registry,
        )
        self._drops = Counter(
            "share_partition_drops", "Share-partitions let go, by reason.", ["reason"], registry=registry
        )
        for reason in DropReason:  # all from the beginning: a rate over a series that begins with 1 misses the first
            self._drops.labels(reason.value)

    def appended(self, batches: int, records: int, size: int) -> None:
        """One flush was confirmed."""
        self._batches.inc(batches)
        self._records.inc(records)
        self._bytes.inc(size)

    def loaded(self, report: LoadReport) -> None:
        """A log was rebuilt."""
        self._loads.inc()
        if report.jumped:
            self._jumps.inc()

    def end_raised(self, offsets: int) -> None:
        """The log end was moved up for a share-partition's sake (CM-47)."""
        self._raised.inc(offsets)

    def share_partition_dropped(self, reason: DropReason) -> None:
        """One share-partition's object was let go (PL-604, PL-631)."""
        self._drops.labels(reason.value).inc()

    def watch(self, sessions: SessionCache, partitions: SharePartitions, led: Led) -> None:
        """Compute the gauges when they are asked for."""
        self._registry.register(_Gauges(sessions, partitions, led))


class _Gauges(Collector):
    def __init__(self, sessions: SessionCache, partitions: SharePartitions, led: Led) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._led = led

    def collect(self) -> Iterable[Metric]:
        """Sessions, parked fetches, partitions led, and what is in flight per share-partition."""
        sessions, partitions = self._sessions, self._partitions
        yield GaugeMetricFamily("share_session_cache_share_sessions_count", "Share sessions.", len(sessions))
        yield GaugeMetricFamily(
            "share_session_cache_share_partitions_count", "Partitions over all sessions.", sessions.partition_count
        )
        yield GaugeMetricFamily("purgatory_size", "Parked ShareFetch requests.", partitions.parked)
        yield GaugeMetricFamily("partitions_led", "Topic-partitions led.", len(self._led.led()))
        in_flight = GaugeMetricFamily(
            "share_partition_in_flight_message_count",
            "Offsets between start and end of the window.",
            labels=["group", "topic_id", "partition"],
        )
        for host in partitions.hosts():
            names = [host.key.group_id, topic_id_text(host.key.topic_id), str(host.key.partition)]
            in_flight.add_metric(names, host.core.in_flight)
        yield in_flight
