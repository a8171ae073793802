"""Builds the share coordinator of one process: a host for every shard, the dispatcher, the service, metrics.

Ownership decides which of the hosts serve; this module only builds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from prometheus_client import CollectorRegistry

from shard_runtime.clock import Clock
from shard_runtime.hosting.host_options import HostMeter, HostOptions
from shard_runtime.hosting.shard_host import ShardHost
from shard_runtime.record_log.protocol import RecordLog, ShardId, ShardKind
from share_coordinator.codec import ShareStateCodec
from share_coordinator.config import ShareCoordinatorConfig
from share_coordinator.core.commands import MetadataView, ShareCommand
from share_coordinator.core.records import ShareRecord
from share_coordinator.core.shard import ShareStateShard
from share_coordinator.dispatch import Dispatcher, Owner
from share_coordinator.metrics import CoordinatorMeter, ShardOverview, ShareCoordinatorMetrics
from share_coordinator.service import ShareCoordinatorService

ShareStateHost = ShardHost[ShareCommand, ShareRecord]


class ShareCoordinator:
    """One process's share coordinator.

    Give `hosts` to ownership as the owners of their `shard_id`, bind `service` to ShareCoordinatorService, and pass
    `dispatcher` to the persister of the same process (P-12). Call `start` when requests may arrive, and `stop` before
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
        meter = ShareCoordinatorMetrics(registry, self._overviews) if registry else CoordinatorMeter()
        self.dispatcher: Final = Dispatcher(self.hosts, owner, clock, meter, config.write_timeout_ms)
        self.service: Final = ShareCoordinatorService(self.dispatcher)

    def start(self) -> None:
        """Start serving requests; before this call, each gets COORDINATOR_NOT_AVAILABLE (SC-5)."""
        self.dispatcher.active = True

    def stop(self) -> None:
        """Stop serving requests: each is refused (CM-4)."""
        self.dispatcher.active = False

    async def topics_deleted(self, topic_ids: frozenset[bytes]) -> int:
        """Tombstone the keys of these topics, which were deleted (SC-80). Returns how many."""
        return await self.dispatcher.delete_topics(topic_ids)

    def _overviews(self) -> Mapping[int, ShardOverview]:
        """Return the shards served here, for metrics."""
        return {index: cast(ShareStateShard, self.hosts[index].shard) for index in self.dispatcher.served()}
