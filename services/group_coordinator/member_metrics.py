"""The number of members of each group, computed at each scrape (PL-956)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

from prometheus_client.core import Metric

from group_coordinator.ports import Shards
from shard_runtime.metrics.families import ComputedMetrics, gauge

#: The maximum number of groups that have series. A scrape takes 20 ms for that many.
GROUPS_MAX: Final = 10_000


class MemberMetrics(ComputedMetrics):
    """A series for each group that this node coordinates; 0 for one without members."""

    members = gauge("sharegroups_share_group_members", "Members of the group.", "group")
    left_out = gauge(
        "sharegroups_share_group_members_left_out", f"Groups without a series of their members, beyond {GROUPS_MAX:,}."
    )

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def collect(self) -> Iterable[Metric]:
        """Yield the number of members by group."""
        members, serving = self.members.empty(), [shard for _, shard in self._shards.serving()]
        for group_id, count in islice(chain.from_iterable(shard.members() for shard in serving), GROUPS_MAX):
            members.add_metric([group_id], count)
        yield members
        yield self.left_out.of(max(0, sum(sum(shard.counts()) for shard in serving) - GROUPS_MAX))
