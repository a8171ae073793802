"""Delivery metrics: acknowledgements, lock timeouts, loads, sessions, share requests by topic.

Delivering a record updates no Prometheus metric: each scrape reads the numbers that share-partitions, sessions and
`DeliveryCounts` keep. The load time of each share-partition object is observed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import Metric

from kip932.ids import ACK_NAMES, topic_id_text
from partition_leader.sessions.core.session import SessionCache
from partition_leader.share_partition.delay_reports import DelayReports
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.share_rpc.delivery_counts import DeliveryCounts, TopicCounts
from shard_runtime.metrics.families import ComputedMetrics, Family, counter, gauge

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
_SHARE_PARTITION: Final = ("group", "topic_id", "partition")


class DeliveryMetrics:
    """The delivery metrics of one leader."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._load_time = Histogram(
            "sharegroups_share_partition_load_time_seconds",
            "Time from a share-partition's creation here until it was initialised, or failed.",
            buckets=_SECONDS,
            registry=registry,
        )

    def loaded(self, elapsed_ms: int) -> None:
        """Observe how long a share-partition took to become ACTIVE, or to fail (PL-601)."""
        self._load_time.observe(elapsed_ms / 1000)

    def watch(
        self, sessions: SessionCache, partitions: SharePartitions, counts: DeliveryCounts, delays: DelayReports
    ) -> None:
        """Compute all other metrics at each scrape."""
        self._registry.register(_Delivery(sessions, partitions, counts))
        self._registry.register(_Delays(partitions, delays))


class _Delivery(ComputedMetrics):
    acknowledged = counter(
        "sharegroups_record_acknowledgements_total", "Records acknowledged, by type, once that took effect.", "ack_type"
    )
    evictions = counter(
        "sharegroups_share_session_evictions_total", "Sessions removed because their connection was lost."
    )
    fetches = counter(
        "sharegroups_topic_share_fetch_requests_total", "The share fetches that named the topic.", "topic"
    )
    fetches_failed = counter(
        "sharegroups_topic_failed_share_fetch_requests_total",
        "The share fetches in which a partition of the topic failed.",
        "topic",
    )
    acks = counter(
        "sharegroups_topic_share_acknowledgement_requests_total",
        "The requests with acknowledgements that named the topic.",
        "topic",
    )
    acks_failed = counter(
        "sharegroups_topic_failed_share_acknowledgement_requests_total",
        "The requests with acknowledgements in which a partition of the topic failed.",
        "topic",
    )
    messages = gauge(
        "sharegroups_share_partition_in_flight_messages",
        "Offsets between start and end of the window.",
        *_SHARE_PARTITION,
    )
    batches = gauge(
        "sharegroups_share_partition_in_flight_batches", "Batches of acquired offsets in the window.", *_SHARE_PARTITION
    )
    expired = counter(
        "sharegroups_share_partition_acquisition_lock_timeouts_total",
        "Offsets whose lock has expired since the share-partition was opened here.",
        *_SHARE_PARTITION,
    )
    taken_back = counter(
        "sharegroups_share_partition_deliveries_taken_back_total",
        "Records given back unseen, so the delivery did not count, since the share-partition was opened here.",
        *_SHARE_PARTITION,
    )
    not_taken_back = counter(
        "sharegroups_share_partition_deliveries_not_taken_back_total",
        "Records that had been given back unseen ten times in a row, so this delivery counted.",  # PL-941
        *_SHARE_PARTITION,
    )

    def __init__(self, sessions: SessionCache, partitions: SharePartitions, counts: DeliveryCounts) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        """Yield each metric family once."""
        yield self._acknowledged()
        yield self.evictions.of(self._sessions.evictions)
        yield from self._requests(self.fetches, self.fetches_failed, self._counts.fetches)
        yield from self._requests(self.acks, self.acks_failed, self._counts.acknowledgements)
        yield from self._share_partitions()

    def _acknowledged(self) -> Metric:
        family = self.acknowledged.empty()
        for ack_type, name in ACK_NAMES.items():
            family.add_metric([name], self._counts.acknowledged[ack_type])
        return family

    def _requests(self, total: Family, failed: Family, counts: TopicCounts) -> Iterator[Metric]:
        for declared, by_id in ((total, counts.total), (failed, counts.failed)):
            family = declared.empty()
            by_name: dict[str, int] = {}
            for topic_id in counts.total.keys() | by_id.keys():  # failures start at 0: a rate misses a first value
                topic = self._counts.topic_name(topic_id)
                by_name[topic] = by_name.get(topic, 0) + by_id[topic_id]
            for topic, number in sorted(by_name.items()):
                family.add_metric([topic], number)
            yield family

    def _share_partitions(self) -> Iterable[Metric]:
        messages, batches, expired = self.messages.empty(), self.batches.empty(), self.expired.empty()
        taken_back, counted = self.taken_back.empty(), self.not_taken_back.empty()
        for host in self._partitions.hosts():
            names = [host.key.group_id, topic_id_text(host.key.topic_id), str(host.key.partition)]
            numbers = host.core.numbers()
            messages.add_metric(names, numbers.in_flight)
            batches.add_metric(names, numbers.batch_count)
            expired.add_metric(names, numbers.locks_expired)
            taken_back.add_metric(names, numbers.taken_back)
            counted.add_metric(names, numbers.not_taken_back)
        return messages, batches, expired, taken_back, counted


class _Delays(ComputedMetrics):
    full = gauge(
        "sharegroups_share_group_delayed_full", "Share-partitions held up by delayed records.", "group"
    )  # PL-935
    ever = counter(
        "sharegroups_share_group_delays_total",
        "Records that began to wait for the end of a delay, by cause: released, or their lock had expired.",
        "group",
        "cause",
    )

    def __init__(self, partitions: SharePartitions, delays: DelayReports) -> None:
        self._partitions = partitions
        self._reports = delays

    def collect(self) -> Iterable[Metric]:
        """Return what delayed records hold up, and how many ever were delayed, by group (PL-938)."""
        found: dict[str, int] = {}
        for host in self._partitions.hosts():
            self._reports.count(host.key, host.core)
            found[host.key.group_id] = found.get(host.key.group_id, 0) + host.core.delayed_full(host.config)
        full, ever = self.full.empty(), self.ever.empty()
        for group, bound in found.items():
            full.add_metric([group], bound)
        for (group, cause), records in self._reports.ever.items():
            ever.add_metric([group, cause.value], records)
        return full, ever
