"""Metrics of the partition leader, with Kafka's names in snake_case; counted per batch or computed when asked (P-6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kip932.ids import TopicIdPartition, topic_id_text
from partition_leader.share.archived_records import CAUSES
from partition_leader.share.core.session import SessionCache
from partition_leader.share.core.status import DropReason
from partition_leader.share.leader_parts import LedPartition
from partition_leader.share.partitions import SharePartitions
from partition_leader.topic_log.load import LoadReport
from shard_runtime.hosting.host_options import HostMeter, NoMeter


class Led(Protocol):
    """The partitions led by this process."""

    def led(self) -> dict[TopicIdPartition, LedPartition]:
        """Every partition led now."""
        ...

    def cached_bytes(self) -> int:
        """The memory that their tail caches take now."""
        ...


class PartitionLeaderMetrics:
    """What topic logs report, and gauges over sessions and share-partitions."""

    def __init__(self, registry: CollectorRegistry, host: HostMeter | None = None) -> None:
        """`host`: takes what all services of a process report under the same names."""
        self._registry = registry
        self._host = host or NoMeter()
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
        self._not_raised = Counter(
            "topic_log_end_not_raised",
            "Loads of share-partitions refused because their state lies further beyond the log than a lost tail.",
            registry=registry,
        )
        self._unreadable = Counter(
            "topic_log_unreadable_offsets",
            "Offsets whose records cannot be read, because their entries in the store are damaged or missing.",
            registry=registry,
        )
        self._drops = Counter(
            "share_partition_drops", "Share-partitions let go, by reason.", ["reason"], registry=registry
        )
        self._archived = Counter(
            "share_partition_archived_records",
            "Records that will not be delivered again though nobody accepted them, by cause.",
            ["cause"],
            registry=registry,
        )
        for cause in CAUSES:
            self._archived.labels(cause)
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

    def refused(self, records: int) -> None:
        """Writes of topics were refused; they count as those of the other services do."""
        self._host.refused(records)

    def end_not_raised(self) -> None:
        """State beyond the log's end was not believed (CM-83)."""
        self._not_raised.inc()

    def unreadable(self, offsets: int) -> None:
        """Records are lost to damage in the store (CM-102)."""
        self._unreadable.inc(offsets)

    def share_partition_dropped(self, reason: DropReason) -> None:
        """One share-partition's object was let go (PL-604, PL-631)."""
        self._drops.labels(reason.value).inc()

    def records_archived(self, cause: str, records: int) -> None:
        """Records were archived (PL-810)."""
        self._archived.labels(cause).inc(records)

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
        yield GaugeMetricFamily(
            "topic_log_cached_bytes", "Memory of the tail caches (CM-46).", self._led.cached_bytes()
        )
        in_flight = GaugeMetricFamily(
            "share_partition_in_flight_message_count",
            "Offsets between start and end of the window.",
            labels=["group", "topic_id", "partition"],
        )
        for host in partitions.hosts():
            names = [host.key.group_id, topic_id_text(host.key.topic_id), str(host.key.partition)]
            in_flight.add_metric(names, host.core.in_flight)
        yield in_flight
