"""The role's settings and its metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from shard_runtime.config.process_settings import SettingsError, load_settings
from share_coordinator.config import ShareCoordinatorConfig
from share_coordinator.metrics import ShareCoordinatorMetrics
from tests.support.share_state import Driver, initialize, write


@pytest.mark.rule("SR-14", "SC-53")
def test_defaults_keep_replay_short() -> None:
    config = ShareCoordinatorConfig()
    assert config.state_topic_num_partitions == 50
    assert config.snapshot_update_records_per_snapshot == 100
    assert config.cold_partition_snapshot_interval_ms == 60_000
    assert config.write_timeout_ms == 5_000


@pytest.mark.rule("SC-53")
def test_settings_go_by_kafkas_names_and_ranges() -> None:
    name = "share.coordinator.snapshot.update.records.per.snapshot"
    settings = load_settings({name: "0", "share.coordinator.write.timeout.ms": "700"})
    config = ShareCoordinatorConfig.of(settings)
    assert (config.snapshot_update_records_per_snapshot, config.write_timeout_ms) == (0, 700)
    assert config.state_topic_num_partitions == 50
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")):
        load_settings({name: "501"})


@pytest.mark.rule("SC-41")
def test_metrics_count_requests_and_look_at_the_shards_when_scraped() -> None:
    driver = Driver()
    driver.run(initialize(1, 10))
    driver.run(write(start=20))
    driver.run(write(start=15))
    registry = CollectorRegistry()
    metrics = ShareCoordinatorMetrics(registry, lambda: {7: driver.shard})
    metrics.wrote(3, 20)
    metrics.raised(1)
    metrics.fenced(2)
    assert registry.get_sample_value("share_coordinator_write_total") == 4
    assert registry.get_sample_value("share_coordinator_fenced_total") == 2
    assert registry.get_sample_value("share_coordinator_write_latency_seconds_sum") == pytest.approx(0.02)
    assert registry.get_sample_value("share_coordinator_state_keys", {"shard": "7"}) == 1
    labels = {"shard": "7", "kind": "start_offset_decrease"}
    assert registry.get_sample_value("share_coordinator_anomalies_total", labels) == 1
