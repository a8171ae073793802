"""Gauges of open transactions: how many there are, the age of the oldest, how many partitions have a late one, and how
many offsets are held up behind them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kip932.ids import TopicIdPartition
from partition_leader.metrics import PartitionLeaderMetrics
from partition_leader.topic_log.core.transactions import LATE_MS, OpenTransaction
from tests.support.clocks import HandClock

NAMES = (
    "sharegroups_topic_log_open_transactions", "sharegroups_topic_log_oldest_open_transaction_seconds",
    "sharegroups_partitions_with_late_transactions", "sharegroups_topic_log_unstable_offsets",
)  # fmt: skip


class _Leader:
    def __init__(self) -> None:
        self.logs: dict[TopicIdPartition, Any] = {}

    def log(self, number: int, last_stable: int, end: int, *opened: OpenTransaction) -> None:
        transactions = SimpleNamespace(open=opened, earliest=opened[0] if opened else None)
        log = SimpleNamespace(last_stable=last_stable, high_watermark=end, transactions=transactions)
        self.logs[TopicIdPartition(b"p" * 16, number)] = SimpleNamespace(log=log)

    def led(self) -> dict[TopicIdPartition, Any]:
        return self.logs

    def cached_bytes(self) -> int:
        return 0


@pytest.mark.rule("CM-159")
def test_the_gauges_show_what_is_open_how_long_and_how_much_waits() -> None:
    leader, clock, registry = _Leader(), HandClock(), CollectorRegistry()
    PartitionLeaderMetrics(registry).watch_transactions(leader, clock)

    def reported() -> list[float | None]:
        return [registry.get_sample_value(name) for name in NAMES]

    leader.log(0, 10, 10)
    assert reported() == [0, 0, 0, 0]
    begun_ms = clock.wall_ms()
    one = OpenTransaction(71, 0, 4, "a", begun_ms + 900, begun_ms)
    leader.log(1, 4, 10, one)
    leader.log(2, 7, 9, one._replace(first_offset=7), OpenTransaction(72, 0, 8, "b", begun_ms + 500, 0))
    clock.ms += LATE_MS - 1
    assert reported() == [2, (LATE_MS - 1) / 1_000, 0, 8]
    clock.ms += 1
    assert reported() == [2, LATE_MS / 1_000, 2, 8]
