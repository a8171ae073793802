"""Settings of the share coordinator, with Kafka's names (share-coordinator.md section 6.1)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

PREFIX: Final = "share.coordinator."


def _setting(name: str, default: int, low: int, high: int | None, doc: str) -> Any:
    return field(default=default, metadata={"name": PREFIX + name, "low": low, "high": high, "doc": doc})


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """Checked values; each field's metadata holds its Kafka name, range and meaning. Times are milliseconds."""

    state_topic_num_partitions: int = _setting(
        "state.topic.num.partitions", 50, 1, None, "Shards of share state; fixed for the life of the deployment."
    )
    snapshot_update_records_per_snapshot: int = _setting(
        "snapshot.update.records.per.snapshot",
        100,
        0,
        500,
        "Updates of a share-partition after which the next write is a snapshot; 0: always. Kafka's default is 500; "
        "100 keeps a take-over's replay short for less than 10 % more writes.",
    )
    write_timeout_ms: int = _setting(
        "write.timeout.ms",
        5_000,
        1,
        None,
        "How long a caller waits for the store; the write may still land.",
    )
    cold_partition_snapshot_interval_ms: int = _setting(
        "cold.partition.snapshot.interval.ms",
        60_000,
        1,
        None,
        "Age at which a changed share-partition is copied, so that older records can be trimmed. Kafka's default is "
        "300000; a minute keeps logs short.",
    )

    def __post_init__(self) -> None:
        for spec in fields(self):
            value, low, high = getattr(self, spec.name), spec.metadata["low"], spec.metadata["high"]
            if value < low or (high is not None and value > high):
                expected = f"at least {low}" if high is None else f"{low} to {high}"
                raise ValueError(f"{spec.metadata['name']} is {value}; expected {expected}")
