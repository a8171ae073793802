"""The group coordinator's metrics (GC-150…GC-152, GC-157).

Gauges are computed at each scrape (GC-156). For the hosts' metrics see `shard_runtime.metrics.runtime`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from group_coordinator.member_metrics import MemberMetrics
from group_coordinator.ports import Shards
from shard_runtime.metrics.families import ComputedMetrics, gauge
from shard_runtime.rpc.peer_notices import DROPPED, REFUSED, REPORTED

_PROTOCOL: Final = "share"
_STATES: Final = ("Empty", "Stable", "Dead")
#: Why a member was removed: a leader lost its connection and it did not heartbeat within the grace; or its session
#: time-out passed.
LOST_CONNECTION: Final = "lost_connection"
SESSION_TIMEOUT: Final = "session_timeout"


class GroupCoordinatorMetrics:
    """The role's counters, and a collector of its gauges."""

    def __init__(self, registry: CollectorRegistry, shards: Shards) -> None:
        self._rebalances = Counter(
            "sharegroups_group_coordinator_rebalances_total",
            "Group epoch bumps caused by heartbeats.",
            ["protocol"],
            registry=registry,
        ).labels(_PROTOCOL)
        outcomes = Counter(
            "sharegroups_group_coordinator_initialized_partitions_total",
            "Share-partitions whose initialisation ended, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._succeeded, self._failed = outcomes.labels("succeeded"), outcomes.labels("failed")
        self._repaired = Counter(
            "sharegroups_group_coordinator_repaired_partitions_total",
            "Share-partitions whose state the share coordinator had lost.",  # GC-82
            registry=registry,
        )
        self._expired = Counter(
            "sharegroups_group_coordinator_expired_groups_total",
            "Groups whose deletion began because they were empty for too long.",  # GC-46
            registry=registry,
        )
        self._expired_members = Counter(
            "sharegroups_group_coordinator_expired_members_total",
            "Members removed because they did not heartbeat, by reason.",  # GC-30, GC-36
            ["reason"],
            registry=registry,
        )
        for reason in (LOST_CONNECTION, SESSION_TIMEOUT):
            self._expired_members.labels(reason)
        self._removals = Counter(
            "sharegroups_group_coordinator_member_removals_total",
            "Orders to partition leaders to end the share sessions of removed members, by outcome.",  # GC-39b
            ["outcome"],
            registry=registry,
        )
        for outcome in (REPORTED, REFUSED, DROPPED):
            self._removals.labels(outcome)
        registry.register(_Gauges(shards))
        registry.register(MemberMetrics(shards))

    def rebalanced(self) -> None:
        """Count a heartbeat that bumped a group epoch."""
        self._rebalances.inc()

    def initialized(self, succeeded: int, failed: int) -> None:
        """Count the partitions of one initialisation call that has ended."""
        self._succeeded.inc(succeeded)
        self._failed.inc(failed)

    def repaired(self, partitions: int) -> None:
        """Count `partitions` partitions that went back to initialising."""
        self._repaired.inc(partitions)

    def member_expired(self, reason: str) -> None:
        """Count a member that was removed because it did not heartbeat."""
        self._expired_members.labels(reason).inc()

    def count_removals(self, outcome: str, orders: int) -> None:
        """Count orders to leaders that were delivered, or refused by an older build, or not delivered in time."""
        self._removals.labels(outcome).inc(orders)

    def expired(self, groups: int) -> None:
        """Count `groups` groups whose deletion began because they were empty for too long."""
        self._expired.inc(groups)


class _Gauges(ComputedMetrics):
    groups = gauge(
        "sharegroups_group_coordinator_groups", "Groups on this node by protocol and state.", "protocol", "state"
    )

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def collect(self) -> Iterable[Metric]:
        counts = [shard.counts() for _, shard in self._shards.serving()]
        by_state = dict(
            zip(_STATES, (sum(empty for empty, _ in counts), sum(stable for _, stable in counts), 0), strict=True)
        )
        groups = self.groups.empty()
        for state, count in by_state.items():
            groups.add_metric([_PROTOCOL, state], count)
        return [groups]
