"""The settings of `shard_runtime.config.kafka_configs` that the share coordinator uses (section 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from shard_runtime.config.kafka_configs import (
    STATE_COLD_INTERVAL_MS,
    STATE_SHARDS,
    STATE_WRITE_TIMEOUT_MS,
    UPDATES_PER_SNAPSHOT,
)
from shard_runtime.config.process_settings import Settings


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """The values of one process; their ranges were checked when the settings were loaded. Times are milliseconds."""

    state_topic_num_partitions: int = STATE_SHARDS.default
    snapshot_update_records_per_snapshot: int = UPDATES_PER_SNAPSHOT.default
    write_timeout_ms: int = STATE_WRITE_TIMEOUT_MS.default
    cold_partition_snapshot_interval_ms: int = STATE_COLD_INTERVAL_MS.default

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Take the values from a process's settings."""
        return cls(
            state_topic_num_partitions=settings[STATE_SHARDS],
            snapshot_update_records_per_snapshot=settings[UPDATES_PER_SNAPSHOT],
            write_timeout_ms=settings[STATE_WRITE_TIMEOUT_MS],
            cold_partition_snapshot_interval_ms=settings[STATE_COLD_INTERVAL_MS],
        )
