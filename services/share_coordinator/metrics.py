"""The share coordinator's metrics, counted once per batch, never per record (share-coordinator.md section 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric

from shard_runtime.metrics.families import ComputedMetrics, counter, gauge
from share_coordinator.core.shard import Counts

_LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class ShardOverview(Protocol):
    """The part of a shard that metrics read."""

    @property
    def keys(self) -> int:
        """How many share-partitions have state."""
        ...

    @property
    def counts(self) -> Counts:
        """The counts made during replay."""
        ...


class CoordinatorMeter:
    """Receives the counts of the request path. This one counts nothing."""

    def wrote(self, keys: int, elapsed_ms: int) -> None:
        """Count a completed write of `keys` keys, refused ones included; `elapsed_ms` includes the commit."""

    def raised(self, keys: int) -> None:
        """Count reads of `keys` keys that stored a newer leader epoch; they count as writes."""

    def fenced(self, keys: int) -> None:
        """Count `keys` keys for which a caller with an old epoch was refused."""

    def implausible(self, keys: int) -> None:
        """Count `keys` keys for which a value was refused that no correct node sends (CM-82)."""


class ShareCoordinatorMetrics(CoordinatorMeter):
    """The meter for Prometheus. `shards` returns, at each scrape, the shards served here, by index."""

    def __init__(self, registry: CollectorRegistry, shards: Callable[[], Mapping[int, ShardOverview]]) -> None:
        self._writes = Counter(
            "sharegroups_share_coordinator_writes_total",
            "Writes per share-partition, and reads that stored a leader epoch (write-total).",
            registry=registry,
        )
        self._fenced = Counter(
            "sharegroups_share_coordinator_fenced_requests_total",
            "Requests per share-partition refused for an old epoch.",
            registry=registry,
        )
        self._implausible = Counter(
            "sharegroups_share_coordinator_implausible_requests_total",
            "Requests per share-partition refused for a value that no correct node sends.",
            registry=registry,
        )
        self._latency = Histogram(
            "sharegroups_share_coordinator_write_latency_seconds",
            "A whole write request, commit included (write-latency).",
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        registry.register(_ShardCollector(shards))

    def wrote(self, keys: int, elapsed_ms: int) -> None:
        """Count a completed write request."""
        self._writes.inc(keys)
        self._latency.observe(elapsed_ms / 1000)

    def raised(self, keys: int) -> None:
        """Count reads that stored newer leader epochs."""
        self._writes.inc(keys)

    def fenced(self, keys: int) -> None:
        """Count requests refused for an old epoch."""
        self._fenced.inc(keys)

    def implausible(self, keys: int) -> None:
        """Count refused values that no correct node sends."""
        self._implausible.inc(keys)


class _ShardCollector(ComputedMetrics):
    """Reads the shards at each scrape, so that nothing is updated in between."""

    keys = gauge("sharegroups_share_coordinator_state_keys", "Share-partitions with state.", "shard")
    seen = counter(
        "sharegroups_share_coordinator_anomalies_total",
        "Anomalies seen since the shard was taken over, by kind.",
        "shard",
        "kind",
    )

    def __init__(self, shards: Callable[[], Mapping[int, ShardOverview]]) -> None:
        self._shards = shards

    def collect(self) -> Iterable[Metric]:
        keys, seen = self.keys.empty(), self.seen.empty()
        for index, shard in self._shards().items():
            label = str(index)
            keys.add_metric([label], shard.keys)
            seen.add_metric([label, "start_offset_decrease"], shard.counts.start_offset_decreases)
            seen.add_metric([label, "orphan_update"], shard.counts.orphan_updates)
            seen.add_metric([label, "snapshot_epoch_mismatch"], shard.counts.epoch_mismatches)
        return keys, seen
