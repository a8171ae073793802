"""The whole role, with the hosts of its shards, built from what a node passes to it. The composition root builds only
this part of the package.

Order of use: build it; give `hosts` to ownership and `service` to the RPC server; call `start`; at the end, after the
shards were released, call `stop`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry

from group_coordinator.admin_outcomes import AdminOutcomes
from group_coordinator.codec import GroupLogCodec
from group_coordinator.config import GroupCoordinatorConfig, load_assignor
from group_coordinator.core.commands import Command
from group_coordinator.core.records import Record
from group_coordinator.core.shard import GroupShard
from group_coordinator.core.views import TopicsView
from group_coordinator.leader_end_offsets import EndOffsets
from group_coordinator.letter_loops import DeadLetterCycles
from group_coordinator.member_removals import MemberRemovals
from group_coordinator.metrics import GroupCoordinatorMetrics
from group_coordinator.service import GroupCoordinator, Surroundings
from group_coordinator.service_alterations import OffsetAlterations
from group_coordinator.service_connections import MemberConnections, expiry_reporter
from group_coordinator.service_deletions import Deletions
from group_coordinator.service_offsets import ShareGroupOffsets
from group_coordinator.state_calls import StateCalls
from group_coordinator.sweeper import Sweeper
from kip932.errors import CoordinatorNotAvailableError
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import Transport
from shard_runtime.clock import Clock
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.hosting.host_options import HostMeter, HostOptions
from shard_runtime.hosting.shard_host import ShardHost
from shard_runtime.record_log.protocol import RecordLog, ShardId, ShardKind
from share_persister.values import Persister

GroupHost = ShardHost[Command, Record]
Effects = Callable[[Sequence[object]], None]
MakeHost = Callable[[int, Effects, Callable[[], None]], GroupHost]


class GroupShards:
    """The `ports.Shards` of this process: one host per shard of the group log. Hosts are made once; ownership loads and
    drops their shards."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.hosts: tuple[GroupHost, ...] = ()

    def build(
        self, make_host: MakeHost, run: Callable[[int, Sequence[object]], None], drop: Callable[[int], None]
    ) -> None:
        """Make the hosts. `run` is called with a shard's durable effects, `drop` when the shard is lost."""
        self.hosts = tuple(self._host(index, make_host, run, drop) for index in range(self.count))

    async def submit(self, shard: int, command: Command) -> object:
        """See `ports.Shards`. Before `build` it raises COORDINATOR_NOT_AVAILABLE (GC-6)."""
        if not self.hosts:
            raise CoordinatorNotAvailableError("the group coordinator has not started yet")
        return await self.hosts[shard].submit(command)

    def serving(self) -> Sequence[tuple[int, GroupShard]]:
        """See `ports.Shards`."""
        return [(index, shard) for index, host in enumerate(self.hosts) if isinstance(shard := host.shard, GroupShard)]

    @staticmethod
    def _host(
        index: int,
        make_host: MakeHost,
        run: Callable[[int, Sequence[object]], None],
        drop: Callable[[int], None],
    ) -> GroupHost:
        return make_host(index, lambda effects: run(index, effects), lambda: drop(index))


@dataclass(frozen=True, slots=True)
class Node:
    """The role's dependencies, which its node provides.

    `topics`: the newest metadata image (`image_topics.newest_topics`). `complete_since_ms`: the time, by the deadline
    clock, since which it is known to be complete; −1 when it is not (GC-80). `configs`: the effective configs of a
    group, clamped (GC-137). `owner_of`: the owner of a group shard, for hints. `leader_of`: `host:port` of a
    partition's leader. `enabled`: whether share.version ≥ 1 (GC-8). `meter`: counts flushes and loads. `host_options`:
    the hosts' bounds; their write time-out is the role's own setting. `queue_of`: the dead-letter topic of a group, ""
    for none. `leaders`: the internal addresses of all nodes that lead partitions, which are notified of removed members
    (GC-39a).
    """

    record_log: RecordLog
    clock: Clock
    persister: Persister
    transport: Transport
    registry: CollectorRegistry
    topics: Callable[[], TopicsView]
    configs: Callable[[str], GroupConfig]
    complete_since_ms: Callable[[], int]
    owner_of: Callable[[int], OwnerAddress | None]
    leader_of: Callable[[TopicIdPartition], str | None]
    enabled: Callable[[], bool] = lambda: True
    meter: HostMeter = field(default_factory=HostMeter)
    host_options: HostOptions = field(default_factory=HostOptions)
    queue_of: Callable[[str], str] = lambda _: ""
    leaders: Callable[[], Collection[str]] = tuple


class GroupCoordinatorService:
    """All handlers of `GroupCoordinatorService` in one object, for `shard_runtime.rpc.binding.bind`."""

    def __init__(
        self,
        groups: GroupCoordinator,
        offsets: ShareGroupOffsets,
        alterations: OffsetAlterations,
        deletions: Deletions,
    ) -> None:
        self.share_group_heartbeat = groups.share_group_heartbeat
        self.share_group_describe = groups.share_group_describe
        self.list_groups = groups.list_groups
        self.describe_share_group_offsets = offsets.describe_share_group_offsets
        self.alter_share_group_offsets = alterations.alter_share_group_offsets
        self.delete_groups = deletions.delete_groups
        self.delete_share_group_offsets = deletions.delete_share_group_offsets


class GroupCoordinatorRole:
    """The group coordinator of one node. `configs`: the broker configs, passed to a custom assignor (GC-57).

    Raises ConfigError for an assignor that cannot be loaded.
    """

    def __init__(self, config: GroupCoordinatorConfig, node: Node, configs: Mapping[str, object]) -> None:
        self._config = config
        self._node = node
        self._assignor = load_assignor(config.assignors, configs)
        self._settings = config.settings()
        self.shards = GroupShards(config.shards)
        self.metrics = GroupCoordinatorMetrics(node.registry, self.shards)
        loops = DeadLetterCycles(self.shards, node.queue_of)
        self.cycle_closed_by = loops.closed_by
        self._sweeper = Sweeper(
            self.shards, node.complete_since_ms, config.sweep_interval_ms, self.metrics.expired, loops.check
        )
        outcomes = AdminOutcomes()
        self._removals = MemberRemovals(node.transport, node.leaders, node.clock, self.metrics.count_removals)
        report_expiry = expiry_reporter(self.metrics.member_expired, self._removals.removed)
        self._calls = StateCalls(
            node.persister, self.shards, self.metrics, outcomes, sweep_soon=self._sweeper.soon, expired=report_expiry
        )
        self.shards.build(self._host, self._calls.run, self._calls.drop)
        around = Surroundings(self.shards, node.topics, node.owner_of, node.enabled)
        self.connections = MemberConnections(around)
        ends = EndOffsets(node.transport, node.leader_of)
        self.service = GroupCoordinatorService(
            GroupCoordinator(around, self.metrics.rebalanced),
            ShareGroupOffsets(around, node.persister, ends, node.clock.wall_ms),
            OffsetAlterations(around, outcomes, ends),
            Deletions(around, outcomes, node.complete_since_ms),
        )

    @property
    def hosts(self) -> Sequence[ShardHost[Any, Any]]:
        """The hosts for ownership, one per shard: `{gc:0}`…."""
        return self.shards.hosts

    def topics_changed(self) -> None:
        """Sweep soon, because the metadata image has a new version."""
        self._sweeper.topics_changed()

    def start(self) -> None:
        """Start background work; needs a running loop."""
        self._sweeper.start()
        self._removals.start()

    async def stop(self) -> None:
        """End background work and outgoing calls. Call it after the shards were released."""
        await self._sweeper.stop()
        await self._removals.stop()
        await self._calls.close()

    def _host(self, index: int, effects: Effects, dropped: Callable[[], None]) -> GroupHost:
        return ShardHost(
            ShardId(ShardKind.GROUP, str(index)),
            self._new_shard,
            GroupLogCodec(),
            self._node.record_log,
            self._node.clock,
            effects=effects,
            dropped=dropped,
            options=replace(self._node.host_options, write_timeout_ms=self._config.commit_timeout_ms),
            meter=self._node.meter,
        )

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._node.topics, self._node.configs, self._settings, self._assignor)
