"""What the share coordinator counts, once per batch, never per record (share-coordinator.md section 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from share_coordinator.core.shard import Counts

_LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class ShardOverview(Protocol):
    """What a shard shows to metrics."""

    @property
    def keys(self) -> int:
        """How many share-partitions have state."""
        ...

    @property
    def counts(self) -> Counts:
        """What replay has counted."""
        ...


class CoordinatorMeter(Protocol):
    """What the request path reports to."""

    def wrote(self, keys: int, elapsed_ms: int) -> None:
        """A write of `keys` keys was answered, refused ones included; `elapsed_ms` includes the commit."""
        ...

    def raised(self, keys: int) -> None:
        """Reads of `keys` keys stored a newer leader epoch; they count as writes."""
        ...

    def fenced(self, keys: int) -> None:
        """A caller with an old epoch was refused for `keys` keys."""
        ...

    def implausible(self, keys: int) -> None:
        """For `keys` keys, a value was refused that no correct node sends (CM-82)."""
        ...


class NoMeter:
    """A meter that counts nothing."""

    def wrote(self, keys: int, elapsed_ms: int) -> None:
        """Nothing."""

    def raised(self, keys: int) -> None:
        """Nothing."""

    def fenced(self, keys: int) -> None:
        """Nothing."""

    def implausible(self, keys: int) -> None:
        """Nothing."""


class ShareCoordinatorMetrics:
    """The meter for Prometheus. `shards` gives, at each scrape, the shards served here, by index."""

    def __init__(self, registry: CollectorRegistry, shards: Callable[[], Mapping[int, ShardOverview]]) -> None:
        self._writes = Counter(
            "share_coordinator_write",
            "Writes per share-partition, and reads that stored a leader epoch (write-total).",
            registry=registry,
        )
        self._fenced = Counter(
            "share_coordinator_fenced", "Requests per share-partition refused for an old epoch.", registry=registry
        )
        self._implausible = Counter(
            "share_coordinator_implausible",
            "Requests per share-partition refused for a value that no correct node sends.",
            registry=registry,
        )
        self._latency = Histogram(
            "share_coordinator_write_latency_seconds",
            "A whole write request, commit included (write-latency).",
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        registry.register(_ShardCollector(shards))

    def wrote(self, keys: int, elapsed_ms: int) -> None:
        """One write request was answered."""
        self._writes.inc(keys)
        self._latency.observe(elapsed_ms / 1000)

    def raised(self, keys: int) -> None:
        """Reads stored newer leader epochs."""
        self._writes.inc(keys)

    def fenced(self, keys: int) -> None:
        """Callers with an old epoch were refused."""
        self._fenced.inc(keys)

    def implausible(self, keys: int) -> None:
        """Values were refused that no correct node sends."""
        self._implausible.inc(keys)


class _ShardCollector(Collector):
    """Reads the shards at each scrape, so that nothing is updated in between."""

    def __init__(self, shards: Callable[[], Mapping[int, ShardOverview]]) -> None:
        self._shards = shards

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not read the shards

    def collect(self) -> Iterable[Metric]:
        keys = GaugeMetricFamily("share_coordinator_state_keys", "Share-partitions with state.", labels=["shard"])
        seen = CounterMetricFamily(
            "share_coordinator_anomalies", "Oddities seen since the shard was taken over.", labels=["shard", "kind"]
        )
        for index, shard in self._shards().items():
            label = str(index)
            keys.add_metric([label], shard.keys)
            seen.add_metric([label, "start_offset_decrease"], shard.counts.start_offset_decreases)
            seen.add_metric([label, "orphan_update"], shard.counts.orphan_updates)
            seen.add_metric([label, "snapshot_epoch_mismatch"], shard.counts.epoch_mismatches)
        return keys, seen
