"""The role's metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from share_coordinator.core.records import ShareUpdate
from share_coordinator.metrics import ShareCoordinatorMetrics
from tests.support.share_state import KEY, Driver, initialize, write


@pytest.mark.rule("SC-41")
def test_metrics_count_requests_and_read_the_shards_when_scraped() -> None:
    driver = Driver()
    driver.run(initialize(1, 10))
    driver.run(write(start=20))
    driver.run(write(start=15))
    driver.shard.replay(ShareUpdate(KEY._replace(group_id="orphan"), 4, 2, 1, 10, 0, ()))
    driver.shard.replay(ShareUpdate(KEY._replace(group_id="orphan"), 5, -1, 0, 12, -1, ()))
    registry = CollectorRegistry()
    metrics = ShareCoordinatorMetrics(registry, lambda: {7: driver.shard})
    metrics.wrote(3, 20)
    metrics.raised(1)
    metrics.fenced(2)
    assert registry.get_sample_value("sharegroups_share_coordinator_writes_total") == 4
    assert registry.get_sample_value("sharegroups_share_coordinator_fenced_requests_total") == 2
    assert registry.get_sample_value("sharegroups_share_coordinator_write_latency_seconds_sum") == pytest.approx(0.02)
    assert registry.get_sample_value("sharegroups_share_coordinator_state_keys", {"shard": "7"}) == 2
    for kind in ("start_offset_decrease", "orphan_update", "snapshot_epoch_mismatch"):
        labels = {"shard": "7", "kind": kind}
        assert registry.get_sample_value("sharegroups_share_coordinator_anomalies_total", labels) == 1, kind
