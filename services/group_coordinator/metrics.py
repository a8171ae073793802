"""What the group coordinator counts and shows (GC-150…GC-153, GC-157). Gauges are computed when scraped (GC-156)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from group_coordinator.doors import Shards
from shard_runtime.host_options import HostState
from shard_runtime.shard_host import ShardHost

_STATES: Final = ("Empty", "Stable", "Dead")


class GroupCoordinatorMetrics:
    """Counters of the role, and a collector of its gauges."""

    def __init__(
        self, registry: CollectorRegistry, shards: Shards, hosts: Callable[[], Iterable[ShardHost[object, object]]]
    ) -> None:
        self._rebalances = Counter(
            "group_coordinator_share_group_rebalance",
            "Group epoch bumps caused by heartbeats (share-group-rebalance-count).",
            registry=registry,
        )
        # The seeds' name for the same number (OP-9).
        self._rebalances_by_protocol = Counter(
            "group_coordinator_rebalance", "Group epoch bumps caused by heartbeats.", ["protocol"], registry=registry
        ).labels("share")
        outcomes = Counter(
            "group_coordinator_initialized_partitions",
            "Share-partitions whose initialisation ended, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._succeeded, self._failed = outcomes.labels("succeeded"), outcomes.labels("failed")
        self._repaired = Counter(
            "group_coordinator_repaired_partitions",
            "Share-partitions whose state the share coordinator had lost (GC-82).",
            registry=registry,
        )
        self._load_s = Histogram(
            "group_coordinator_partition_load_seconds", "Replay of one shard (partition-load-time).", registry=registry
        )
        self._flush_s = Histogram(
            "group_coordinator_batch_flush_seconds", "One durable append (batch-flush-time).", registry=registry
        )
        self._records = Counter("group_coordinator_records", "Records appended to the group log.", registry=registry)
        self._refused = Counter("group_coordinator_refused_records", "Records the store refused.", registry=registry)
        self._unknown = Counter(
            "group_coordinator_unknown_records", "Entries of unknown types skipped at load.", registry=registry
        )
        registry.register(_Gauges(shards, hosts))

    def rebalanced(self) -> None:
        """A heartbeat bumped a group epoch."""
        self._rebalances.inc()
        self._rebalances_by_protocol.inc()

    def initialized(self, succeeded: int, failed: int) -> None:
        """One initialisation call ended."""
        self._succeeded.inc(succeeded)
        self._failed.inc(failed)

    def repaired(self, partitions: int) -> None:
        """So many partitions went back to initialising."""
        self._repaired.inc(partitions)

    # ---- HostMeter

    def flushed(self, records: int, elapsed_ms: int) -> None:
        """One flush was committed."""
        self._records.inc(records)
        self._flush_s.observe(elapsed_ms / 1000)

    def refused(self, records: int) -> None:
        """One flush was refused and undone."""
        self._refused.inc(records)

    def loaded(self, entries: int, unknown: int, elapsed_ms: int) -> None:
        """A log was replayed (GC-154)."""
        self._unknown.inc(unknown)
        self._load_s.observe(elapsed_ms / 1000)

    def trimmed(self, entries_left: int) -> None:
        """A log was compacted."""


class _Gauges(Collector):
    def __init__(self, shards: Shards, hosts: Callable[[], Iterable[ShardHost[object, object]]]) -> None:
        self._shards = shards
        self._hosts = hosts

    def collect(self) -> Iterable[Metric]:
        counts = [shard.counts() for _, shard in self._shards.serving()]
        by_state = dict(
            zip(_STATES, (sum(empty for empty, _ in counts), sum(stable for _, stable in counts), 0), strict=True)
        )
        states = GaugeMetricFamily(
            "group_coordinator_share_group_count", "Share groups on this node by state.", labels=["state"]
        )
        both = GaugeMetricFamily(
            "group_coordinator_group_count", "Groups on this node by protocol and state.", labels=["protocol", "state"]
        )
        for state, count in by_state.items():
            states.add_metric([state], count)
            both.add_metric(["share", state], count)
        shards = GaugeMetricFamily(
            "group_coordinator_num_partitions", "Shards of the group log on this node by state.", labels=["state"]
        )
        found = [host.state for host in self._hosts()]
        for state in (HostState.LOADING, HostState.ACTIVE, HostState.FAILED):
            shards.add_metric([state.value], found.count(state))
        return [states, both, shards]
