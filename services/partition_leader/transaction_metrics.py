"""Gauges of the transactions that are open in the logs led here, computed at each scrape (PL-1006)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kip932.ids import TopicIdPartition
from partition_leader.share.leader_parts import LedPartition
from partition_leader.topic_log.core.transactions import LATE_MS
from shard_runtime.clock import Clock


class Led(Protocol):
    """The partitions led by this process."""

    def led(self) -> dict[TopicIdPartition, LedPartition]:
        """Return every partition led now."""
        ...


class TransactionGauges(Collector):
    """Gauges of the transactions that hold up groups that read committed records."""

    def __init__(self, led: Led, clock: Clock) -> None:
        self._led = led
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """Yield the open transactions, the age of the oldest, the partitions held up for long, and the unstable
        offsets."""
        wall_ms = self._clock.wall_ms()
        oldest_ms = late = unstable = 0
        transactions: set[tuple[int, int]] = set()
        for led in self._led.led().values():
            log = led.log
            earliest = log.transactions.earliest
            if earliest is None:
                continue
            longest_ms = max(one.open_ms(wall_ms) for one in log.transactions.open)
            oldest_ms = max(oldest_ms, longest_ms)
            late += longest_ms >= LATE_MS
            unstable += max(log.high_watermark - log.last_stable, 0)
            transactions |= {(one.producer_id, one.producer_epoch) for one in log.transactions.open}
        yield GaugeMetricFamily("topic_log_open_transactions", "Transactions open in the logs led.", len(transactions))
        yield GaugeMetricFamily(
            "topic_log_oldest_open_transaction_seconds", "Age of the oldest of them.", oldest_ms / 1_000
        )
        yield GaugeMetricFamily(
            "partitions_with_late_transactions_count",
            f"Partitions with a transaction that is open for {LATE_MS // 1_000} s or longer.",
            late,
        )
        yield GaugeMetricFamily(
            "topic_log_unstable_offsets",
            "Offsets between the last stable offset and the high watermark, which groups that read committed records "
            "do not get yet.",
            unstable,
        )
