"""The counters of `ShareConsumer.metrics()` (CL-41): updated once per request, never per record (P-6).

Rates are averages over the life of the client. Names are Kafka's, in the groups consumer-share-fetch-manager-metrics,
consumer-share-coordinator-metrics and consumer-share-metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kip932.quotas import CONSUMER_BYTE_RATE
from sharegroups.connection.quota_waits import QuotaWaits

FETCH = "consumer-share-fetch-manager-metrics"
COORDINATOR = "consumer-share-coordinator-metrics"
CONSUMER = "consumer-share-metrics"


@dataclass(slots=True)
class Sample:
    """Count, sum and maximum of a measured value."""

    count: int = 0
    total: float = 0.0
    maximum: float = 0.0

    def add(self, value: float) -> None:
        """Add one value."""
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)

    @property
    def average(self) -> float:
        """The mean, 0 without values."""
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True)
class ConsumerMetrics:
    """The counters of one consumer. Times are seconds of a monotonic clock."""

    started_s: float
    fetch_size: Sample = field(default_factory=Sample)
    records: Sample = field(default_factory=Sample)
    fetch_latency_ms: Sample = field(default_factory=Sample)
    quota_waits: QuotaWaits = field(default_factory=lambda: QuotaWaits("consumer", CONSUMER_BYTE_RATE))
    acknowledgements: int = 0
    acknowledgement_errors: int = 0
    expired_records: int = 0
    heartbeats: int = 0
    heartbeat_ms: Sample = field(default_factory=Sample)
    last_heartbeat_s: float | None = None
    last_poll_s: float | None = None
    between_polls_ms: Sample = field(default_factory=Sample)
    idle_s: float = 0.0

    def brought(self, records: int, size: int) -> None:
        """Count the records of one partition in a response; `size`: their total size in bytes."""
        self.fetch_size.add(size)
        self.records.add(records)

    def polled(self, now_s: float) -> None:
        """Note the start of a poll."""
        if self.last_poll_s is not None:
            self.between_polls_ms.add((now_s - self.last_poll_s) * 1000)
        self.last_poll_s = now_s

    def snapshot(self, now_s: float, rebalances: int) -> dict[tuple[str, str], float]:
        """Return every metric by (group, name)."""
        elapsed = max(now_s - self.started_s, 1e-3)
        fetch = {
            "fetch-size-avg": self.fetch_size.average,
            "fetch-size-max": self.fetch_size.maximum,
            "bytes-consumed-rate": self.fetch_size.total / elapsed,
            "bytes-consumed-total": self.fetch_size.total,
            "records-per-request-avg": self.records.average,
            "records-per-request-max": self.records.maximum,
            "records-consumed-rate": self.records.total / elapsed,
            "records-consumed-total": self.records.total,
            "records-expired-total": float(self.expired_records),
            "acknowledgements-send-rate": self.acknowledgements / elapsed,
            "acknowledgements-send-total": float(self.acknowledgements),
            "acknowledgements-error-rate": self.acknowledgement_errors / elapsed,
            "acknowledgements-error-total": float(self.acknowledgement_errors),
            "fetch-latency-avg": self.fetch_latency_ms.average,
            "fetch-latency-max": self.fetch_latency_ms.maximum,
            "fetch-rate": self.fetch_latency_ms.count / elapsed,
            "fetch-total": float(self.fetch_latency_ms.count),
            "fetch-throttle-time-avg": self.quota_waits.average_ms,
            "fetch-throttle-time-max": float(self.quota_waits.maximum_ms),
        }
        coordinator = {
            "heartbeat-rate": self.heartbeats / elapsed,
            "heartbeat-total": float(self.heartbeats),
            "heartbeat-response-time-max": self.heartbeat_ms.maximum,
            "last-heartbeat-seconds-ago": _ago(self.last_heartbeat_s, now_s),
            "rebalance-total": float(rebalances),
            "rebalance-rate-per-hour": rebalances / elapsed * 3600,
        }
        consumer = {
            "last-poll-seconds-ago": _ago(self.last_poll_s, now_s),
            "time-between-poll-avg": self.between_polls_ms.average,
            "time-between-poll-max": self.between_polls_ms.maximum,
            "poll-idle-ratio-avg": min(1.0, self.idle_s / elapsed),
        }
        groups = {FETCH: fetch, COORDINATOR: coordinator, CONSUMER: consumer}
        return {(group, name): value for group, metrics in groups.items() for name, value in metrics.items()}


def _ago(then_s: float | None, now_s: float) -> float:
    return -1.0 if then_s is None else now_s - then_s
