"""The role's settings."""

from __future__ import annotations

import pytest

from shard_runtime.config.process_settings import SettingsError, load_settings
from share_coordinator.config import ShareCoordinatorConfig


@pytest.mark.rule("SR-14")
def test_defaults_keep_replay_short() -> None:
    config = ShareCoordinatorConfig()
    assert config.state_topic_num_partitions == 50
    assert config.snapshot_update_records_per_snapshot == 100
    assert config.cold_partition_snapshot_interval_ms == 60_000
    assert config.write_timeout_ms == 5_000


def test_settings_go_by_kafkas_names_and_ranges() -> None:
    name = "share.coordinator.snapshot.update.records.per.snapshot"
    settings = load_settings({name: "0", "share.coordinator.write.timeout.ms": "700"})
    config = ShareCoordinatorConfig.of(settings)
    assert (config.snapshot_update_records_per_snapshot, config.write_timeout_ms) == (0, 700)
    assert config.state_topic_num_partitions == 50
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")):
        load_settings({name: "501"})
