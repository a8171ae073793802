"""Builds the share coordinator of one process: a host for every shard, the service, the local coordinator, metrics.

Ownership decides which of the hosts serve; this module only builds them and returns those that do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry

from kip932.errors import CoordinatorNotAvailableError, KafkaError, NotCoordinatorError
from kip932.ids import SharePartitionKey
from kip932.state_values import DelayedAt
from shard_runtime.clock import Clock
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.hosting.host_options import HostMeter, HostOptions
from shard_runtime.hosting.shard_host import ShardHost
from shard_runtime.record_log.protocol import RecordLog, ShardId, ShardKind
from share_coordinator.codec import ShareStateCodec
from share_coordinator.config import ShareCoordinatorConfig
from share_coordinator.core import commands as core
from share_coordinator.core.commands import MetadataView, ShareCommand
from share_coordinator.core.records import ShareRecord
from share_coordinator.core.shard import ShareStateShard
from share_coordinator.dispatch import Dispatcher
from share_coordinator.metrics import CoordinatorMeter, ShardOverview, ShareCoordinatorMetrics
from share_coordinator.service import ShareCoordinatorService
from share_persister.values import Answer, Payload, StateOperation, StoredState, TopicStarts, Value

ShareStateHost = ShardHost[ShareCommand, ShareRecord]
#: Returns a shard's owner by the hints (CM-14).
Owner = Callable[[int], OwnerAddress | None]

_LOCAL_COMMANDS: Final[dict[StateOperation, Callable[[SharePartitionKey, Any], core.KeyCommand]]] = {
    StateOperation.READ: lambda key, read: core.ReadState(key, read.leader_epoch, read.generation),
    StateOperation.WRITE: core.WriteState,
    StateOperation.INITIALIZE: lambda key, init: core.InitializeState(key, init.state_epoch, init.start_offset),
    StateOperation.DELETE: core.DeleteState,
    StateOperation.SUMMARY: lambda key, asked: (
        core.ReadSummary(key, None, asked.wall_ms) if isinstance(asked, DelayedAt) else core.ReadSummary(key, asked)
    ),
}


class LocalShareCoordinator:
    """The `LocalCoordinator` of a persister in the same process: it gets this coordinator's answers without messages
    (P-12)."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def owns(self, shard_index: int) -> bool:
        """Return whether this process serves the shard at present."""
        return self._dispatcher.active and self._dispatcher.serves(shard_index)

    async def perform(
        self, operation: StateOperation, key: SharePartitionKey, payload: Payload, within_ms: int
    ) -> Answer:
        """Run one operation, for at most `within_ms`."""
        if not self._dispatcher.active:
            return Answer(CoordinatorNotAvailableError("the share coordinator has stopped"))
        outcome = await self._dispatcher.run_one(_LOCAL_COMMANDS[operation](key, payload), within_ms)
        return self._refusal(key, outcome) if isinstance(outcome, KafkaError) else Answer(None, _value(outcome))

    async def topic_starts(self, topic_ids: frozenset[bytes]) -> Mapping[int, TopicStarts | KafkaError]:
        """Return every group's start offsets in these topics, by shard served here (SC-116)."""
        return await self._dispatcher.topic_starts(topic_ids)

    def _refusal(self, key: SharePartitionKey, error: KafkaError) -> Answer:
        owner = self._dispatcher.owner(key) if isinstance(error, NotCoordinatorError) else None
        return Answer(
            error,
            leader_epoch=error.leader_epoch if isinstance(error, core.StaleLeaderError) else None,
            hint=f"{owner.host}:{owner.port}" if owner else None,
        )


class HostedShards:
    """The `ShardDirectory` of a process with a host for every shard; the hosts of the shards it owns serve."""

    def __init__(self, hosts: Sequence[ShareStateHost], owner: Owner) -> None:
        self.active = False
        self._hosts = hosts
        self._owner = owner

    @property
    def shards(self) -> int:
        """How many shards there are in all."""
        return len(self._hosts)

    def host_for(self, shard_index: int) -> ShareStateHost:
        """Return the shard's host. A host that does not serve refuses commands itself."""
        return self._hosts[shard_index]

    def serves(self, shard_index: int) -> bool:
        """Return whether the shard is owned and replayed here."""
        return self._hosts[shard_index].shard is not None

    def served(self) -> Collection[int]:
        """Return the shards that are owned and replayed here."""
        return [index for index in range(len(self._hosts)) if self.serves(index)]

    def owner(self, shard_index: int) -> OwnerAddress | None:
        """Return a shard's owner by the hints."""
        return self._owner(shard_index)

    def overviews(self) -> Mapping[int, ShardOverview]:
        """Return the shards served here, for metrics."""
        return {index: cast(ShareStateShard, self._hosts[index].shard) for index in self.served()}


class ShareCoordinator:
    """One process's share coordinator.

    Give `hosts` to ownership as the owners of their `shard_id`, bind `service` to ShareCoordinatorService, and pass
    `local` to the persister of the same process (P-12). Call `start` when requests may arrive, and `stop` before
    ownership ends.
    """

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        metadata: MetadataView,
        record_log: RecordLog,
        clock: Clock,
        owner: Owner,
        *,
        registry: CollectorRegistry | None = None,
        host_meter: HostMeter | None = None,
        host_options: HostOptions | None = None,
    ) -> None:
        options = host_options or HostOptions(write_timeout_ms=config.write_timeout_ms)
        self.hosts: Final[Sequence[ShareStateHost]] = [
            ShardHost(
                ShardId(ShardKind.SHARE_STATE, str(index)),
                lambda: ShareStateShard(
                    metadata,
                    config.snapshot_update_records_per_snapshot,
                    config.cold_partition_snapshot_interval_ms,
                ),
                ShareStateCodec(),
                record_log,
                clock,
                options=options,
                meter=host_meter,
            )
            for index in range(config.state_topic_num_partitions)
        ]
        self.directory: Final = HostedShards(self.hosts, owner)
        meter = ShareCoordinatorMetrics(registry, self.directory.overviews) if registry else CoordinatorMeter()
        self._dispatcher = Dispatcher(self.directory, clock, meter, config.write_timeout_ms)
        self.service: Final = ShareCoordinatorService(self._dispatcher)
        self.local: Final = LocalShareCoordinator(self._dispatcher)

    def start(self) -> None:
        """Serve requests; before this call, each is answered COORDINATOR_NOT_AVAILABLE (SC-5)."""
        self.directory.active = True

    def stop(self) -> None:
        """Refuse requests from now on (CM-4)."""
        self.directory.active = False

    async def topics_deleted(self, topic_ids: frozenset[bytes]) -> int:
        """Tombstone the keys of these topics, which were deleted (SC-80). Returns how many."""
        return await self._dispatcher.delete_topics(topic_ids)


def _value(reply: core.KeyReply) -> Value:
    if isinstance(reply, core.StateView):
        return StoredState(reply.state_epoch, reply.start_offset, reply.batches)
    return reply
