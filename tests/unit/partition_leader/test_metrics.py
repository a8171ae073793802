"""The metrics of topic logs, as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from partition_leader.metrics import PartitionLeaderMetrics
from shard_runtime.metrics.runtime import RuntimeMetrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> PartitionLeaderMetrics:
    return PartitionLeaderMetrics(registry)


def test_each_flush_adds_its_batches_its_records_and_its_bytes(
    registry: CollectorRegistry, metrics: PartitionLeaderMetrics
) -> None:
    names = ("batches", "records", "bytes")
    assert [registry.get_sample_value(f"sharegroups_topic_log_appended_{name}_total") for name in names] == [0, 0, 0]
    metrics.appended(2, 30, 4_000, 5)
    metrics.appended(1, 5, 600, 5)
    assert [registry.get_sample_value(f"sharegroups_topic_log_appended_{name}_total") for name in names] == [
        3,
        35,
        4_600,
    ]


def test_a_flush_of_a_topic_log_is_in_the_histogram_of_all_services(registry: CollectorRegistry) -> None:
    PartitionLeaderMetrics(registry, RuntimeMetrics(registry).meter("partition_leader")).appended(2, 30, 4_000, 40)
    for name, value in (("time_seconds_sum", 0.04), ("time_seconds_count", 1), ("records_sum", 30)):
        labels = {"service": "partition_leader"}
        assert registry.get_sample_value(f"sharegroups_batch_flush_{name}", labels) == value


def test_loads_are_counted_and_apart_from_them_those_that_moved_the_end_of_a_log(
    registry: CollectorRegistry, metrics: PartitionLeaderMetrics
) -> None:
    for jumped in (False, True, False):
        metrics.loaded(3, jumped)
    metrics.end_raised(7)
    metrics.end_raised(3)
    metrics.end_not_raised()
    assert registry.get_sample_value("sharegroups_topic_log_loads_total") == 3
    assert registry.get_sample_value("sharegroups_topic_log_end_jumps_total") == 1
    assert registry.get_sample_value("sharegroups_topic_log_end_raised_offsets_total") == 10
    assert registry.get_sample_value("sharegroups_topic_log_end_not_raised_total") == 1
