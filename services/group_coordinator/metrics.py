"""What the group coordinator counts and shows (GC-150…GC-152, GC-157).

Gauges are computed at each scrape (GC-156). For the hosts' metrics see `shard_runtime.metrics.runtime`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from group_coordinator.ports import Shards

_STATES: Final = ("Empty", "Stable", "Dead")


class GroupCoordinatorMetrics:
    """The role's counters, and a collector of its gauges."""

    def __init__(self, registry: CollectorRegistry, shards: Shards) -> None:
        self._rebalances = Counter(
            "group_coordinator_share_group_rebalance",
            "Group epoch bumps caused by heartbeats (share-group-rebalance-count).",
            registry=registry,
        )
        # The same number under the name that the design notes give it (OP-9).
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
        registry.register(_Gauges(shards))

    def rebalanced(self) -> None:
        """A heartbeat bumped a group epoch."""
        self._rebalances.inc()
        self._rebalances_by_protocol.inc()

    def initialized(self, succeeded: int, failed: int) -> None:
        """One initialisation call ended."""
        self._succeeded.inc(succeeded)
        self._failed.inc(failed)

    def repaired(self, partitions: int) -> None:
        """`partitions` partitions went back to initialising."""
        self._repaired.inc(partitions)


class _Gauges(Collector):
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

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
        return [states, both]
