"""The roles of one process, built on its ClusterNode: the only place where all services meet.

For each role it passes shard owners to ownership and services to the RPC servers. The persister calls a share
coordinator in the same process directly (P-12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, Final

from prometheus_client import CollectorRegistry

from group_coordinator.config import config_of
from group_coordinator.image_topics import newest_topics
from group_coordinator.role import GroupCoordinatorRole
from group_coordinator.role import Node as GroupSurroundings
from kip932.api.v1 import cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2
from kip932.ids import TopicIdPartition, shard_index
from kip932.internal.v1 import (
    member_connections_service_pb2,
    member_sessions_service_pb2,
    share_coordinator_service_pb2,
)
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.store_settings import STORE_REPLICAS
from partition_leader.led_partitions import TailCaches
from partition_leader.metrics import PartitionLeaderMetrics
from partition_leader.partition_owners import topic_shard
from partition_leader.role import PartitionLeader
from partition_leader.role import Surroundings as LeaderSurroundings
from partition_leader.topic_log.settings import TopicLogSettings
from shard_runtime.clock import Clock
from shard_runtime.cluster.metadata import MetadataImage
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.cluster.topic_admin import new_producer_id
from shard_runtime.config import kafka_configs
from shard_runtime.config.process_settings import (
    COMPACTION_ENTRIES_MIN,
    CONSUMED_INTERVAL_MS,
    HISTORY_MS,
    LOST_TAIL_JUMP,
    NODE_ROLES,
    PROGRESS_BY_PARTITION,
    PROGRESS_INTERVAL_MS,
    PROGRESS_ROWS_MAX,
    READERS_MAX_LAG_MS,
    RETENTION_INTERVAL_MS,
    SHARD_QUEUE_MAX,
    TAIL_CACHES_BYTES,
    Settings,
)
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.host_options import HostOptions, HostState
from shard_runtime.hosting.shard_host import ShardHost
from shard_runtime.hosting.shard_states import shard_states
from shard_runtime.metrics.runtime import RuntimeMetrics
from shard_runtime.metrics.store import watch_store
from shard_runtime.ownership.placement import ROLE_GROUP_COORDINATOR, ROLE_PARTITION_LEADER, ROLE_SHARE_COORDINATOR
from shard_runtime.record_log.protocol import ShardKind
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.server import RpcServer, add_whole
from shard_runtime.rpc.table import Port
from share_coordinator.config import ShareCoordinatorConfig
from share_coordinator.role import ShareCoordinator
from share_node.node.internal import LeaderForNodes
from share_node.node.process_store import StoreClient
from share_node.node.views import (
    LeaderFacts,
    LetterView,
    PartitionLeaders,
    StateMetadata,
    client_address_of,
    peer_address_of,
    shard_owner,
)
from share_persister.client import PersisterClient
from share_persister.settings import PersisterSettings
from share_persister.topic_starts import TopicStartOffsets
from transaction_coordinator.coordinator import TransactionCoordinator
from transaction_coordinator.forgotten import ForgottenTransactions
from transaction_coordinator.markers import MarkerCalls
from transaction_coordinator.read_service import Surroundings as TransactionSurroundings
from transaction_coordinator.records import TransactionRecords
from transaction_coordinator.service import TransactionService

_CLUSTER: Final = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
_GROUPS: Final = group_coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinatorService"]
_CONNECTIONS: Final = member_connections_service_pb2.DESCRIPTOR.services_by_name["MemberConnectionsService"]
_MEMBER_SESSIONS: Final = member_sessions_service_pb2.DESCRIPTOR.services_by_name["MemberSessionsService"]
_LEADER: Final = partition_leader_service_pb2.DESCRIPTOR.services_by_name["PartitionLeaderService"]
_STATE: Final = share_coordinator_service_pb2.DESCRIPTOR.services_by_name["ShareCoordinatorService"]

#: How many entries for each live key a log may have before it is compacted (CM-18). Groups are many and change seldom:
#: a short log saves more at a start than the copying costs. Share state changes with every acknowledgement.
_GROUP_ENTRIES: Final = 2
_STATE_ENTRIES: Final = 4


class Roles:
    """The roles in `node.roles`. Build it after the node joined, then call `serve`, `start`; at the end `drain`,
    `stop`."""

    def __init__(
        self,
        node: ClusterNode,
        settings: Settings,
        store: StoreClient,
        clock: Clock,
        registry: CollectorRegistry,
        *,
        certificates: NodeCertificates | None = None,
    ) -> None:
        self._node = node
        self._settings = settings
        self._store = store
        self._clock = clock
        self._registry = registry
        self._runtime = RuntimeMetrics(registry)
        watch_store(registry, settings[STORE_REPLICAS], lambda: store.cluster.connected_replicas, store.watch)
        store.damage.count(self._runtime.damage_found)
        self._rng = Random()
        self._transport = GrpcTransport(None if certificates is None else certificates.for_client)
        self._tasks: set[asyncio.Task[object]] = set()
        wanted = settings[NODE_ROLES]
        self._state = self._share_coordinator() if ROLE_SHARE_COORDINATOR in wanted else None
        self._persister = self._persister_client()
        self._transactions = self._transaction_coordinator()
        self._groups = self._group_coordinator() if ROLE_GROUP_COORDINATOR in wanted else None
        self._leader = self._partition_leader() if ROLE_PARTITION_LEADER in wanted else None

    def serve(self, servers: Sequence[RpcServer], internal: RpcServer) -> None:
        """Register services with the servers for clients and the one for nodes (CM-80), and shard owners with the node.
        Call it before any of them starts."""
        node = self._node
        circle = self._groups.cycle_closed_by if self._groups is not None else lambda group_id, topic: ""
        surroundings = TransactionSurroundings(lambda: node.registry.record.node_id, LeaderFacts(node).name)
        cluster = node.service(TransactionService(self._transactions, surroundings), circle)
        for server in servers:
            add_whole(server, Port.CLIENTS, _CLUSTER, cluster)
        add_whole(internal, Port.NODES, _CLUSTER, node.lookups_for_nodes())
        if self._state is not None:
            state_hosts = self._state.hosts
            self._watch(ShardKind.SHARE_STATE, "share_coordinator", state_hosts)
            add_whole(internal, Port.NODES, _STATE, self._state.service)
            node.serve(ShardKind.SHARE_STATE, lambda shard: state_hosts[int(shard.name)])
        if self._groups is not None:
            group_hosts = self._groups.hosts
            self._watch(ShardKind.GROUP, "group_coordinator", group_hosts)
            for server in servers:
                add_whole(server, Port.CLIENTS, _GROUPS, self._groups.service)
            add_whole(internal, Port.NODES, _CONNECTIONS, self._groups.connections)
            node.serve(ShardKind.GROUP, lambda shard: group_hosts[int(shard.name)])
        if self._leader is not None:
            self._watch(ShardKind.TOPIC, "partition_leader")
            for server in servers:
                add_whole(server, Port.CLIENTS, _LEADER, self._leader.service)
            add_whole(internal, Port.NODES, _LEADER, LeaderForNodes(self._leader.service, self._leader.markers))
            add_whole(internal, Port.NODES, _MEMBER_SESSIONS, self._leader.member_sessions)
            node.serve(ShardKind.TOPIC, self._leader.owner)

    def start(self) -> None:
        """Begin background work, and accept requests."""
        if self._state is not None:
            self._state.start()
        if self._groups is not None:
            self._groups.start()
        if self._leader is not None:
            self._leader.start()
        self._spawn(ForgottenTransactions(self._transactions).run())

    def drain(self) -> None:
        """Answer waiting requests; this node still owns its shards."""
        if self._leader is not None:
            self._leader.drain()

    async def stop(self) -> None:
        """End background work and outgoing calls. Call it after the shards were released."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transactions.stop()
        if self._leader is not None:
            await self._leader.stop()
        if self._groups is not None:
            await self._groups.stop()
        if self._state is not None:
            self._state.stop()
        await self._persister.close()
        await self._transport.close()

    def rights_changed(self) -> None:
        """Pass changed access control entries to the roles that act on them."""
        if self._leader is not None:
            self._leader.rights_changed()

    def metadata_changed(self, image: MetadataImage, previous: MetadataImage) -> None:
        """Pass a new version of the metadata to the roles that act on it."""
        deleted = frozenset(image.deleted.keys() - previous.deleted.keys())
        if self._groups is not None:
            self._groups.topics_changed()
        if self._leader is not None:
            self._leader.topics_changed(deleted)
            if image.configs is not previous.configs:
                self._leader.groups_changed()
        if self._state is not None and deleted:
            self._spawn(self._state.topics_deleted(deleted))

    def _watch(self, kind: ShardKind, service: str, hosts: Sequence[ShardHost[Any, Any]] | None = None) -> None:
        """Export a role's shards by state, the operations that wait in their hosts, and what is in quarantine there."""

        def states() -> Sequence[HostState]:
            ownership = self._node.ownership
            return [] if ownership is None else shard_states(ownership.core, kind)

        waiting = None if hosts is None else lambda: sum(host.waiting for host in hosts)
        quarantined = None if hosts is None else lambda: sum(_quarantined(host) for host in hosts)
        self._runtime.watch_hosts(service, states, waiting, quarantined)

    # ---- building

    def _share_coordinator(self) -> ShareCoordinator:
        return ShareCoordinator(
            ShareCoordinatorConfig.of(self._settings),
            StateMetadata(self._node.metadata),
            self._store.record_log,
            self._clock,
            lambda index: peer_address_of(shard_owner(self._node, ShardKind.SHARE_STATE, index)),
            registry=self._registry,
            host_meter=self._runtime.meter("share_coordinator"),
            host_options=self._host_options(self._settings[kafka_configs.STATE_WRITE_TIMEOUT_MS], _STATE_ENTRIES),
        )

    def _persister_client(self) -> PersisterClient:
        return PersisterClient(
            self._transport,
            self._clock,
            self._rng,
            self._addresses,
            shards=self._settings[kafka_configs.STATE_SHARDS],
            resolve=self._state_address,
            local=self._state.dispatcher if self._state is not None else None,
            settings=PersisterSettings(operation_timeout_ms=self._settings[kafka_configs.PERSISTER_TIMEOUT_MS]),
        )

    def _transaction_coordinator(self) -> TransactionCoordinator:
        settings = self._settings
        expiration_ms = settings[kafka_configs.TRANSACTIONAL_ID_EXPIRATION_MS]
        return TransactionCoordinator(
            TransactionRecords(self._store.cluster.transactions, self._rng, expiration_ms),
            MarkerCalls(self._transport, PartitionLeaders(self._node, self._clock)),
            self._rng,
            new_id=new_producer_id,
            max_timeout_ms=settings[kafka_configs.TRANSACTION_MAX_TIMEOUT_MS],
            judged=(lambda store_ms: (store_ms, True)) if self._store.watch is None else self._store.watch.time.judged,
        )

    def _group_coordinator(self) -> GroupCoordinatorRole:
        node, metadata = self._node, self._node.metadata
        return GroupCoordinatorRole(
            config_of(self._settings),
            GroupSurroundings(
                record_log=self._store.record_log,
                clock=self._clock,
                persister=self._persister,
                transport=self._transport,
                registry=self._registry,
                topics=newest_topics(lambda: metadata.image, lambda: metadata.sound),
                configs=node.configs.group_config,
                complete_since_ms=lambda: metadata.complete_since_ms,
                owner_of=lambda index: client_address_of(shard_owner(node, ShardKind.GROUP, index)),
                leader_of=self._leader_address,
                enabled=node.configs.share_enabled,
                meter=self._runtime.meter("group_coordinator"),
                host_options=self._host_options(self._settings[kafka_configs.COMMIT_TIMEOUT_MS], _GROUP_ENTRIES),
                leaders=self._leader_addresses,
                queue_of=lambda group_id: node.configs.group(group_id, kafka_configs.GROUP_DLQ_TOPIC),
            ),
            {name: self._settings[name] for name in kafka_configs.BROKER_CONFIGS},
        )

    def _partition_leader(self) -> PartitionLeader:
        node, settings = self._node, self._settings
        return PartitionLeader(
            LeaderSurroundings(
                record_log=self._store.record_log,
                clock=self._clock,
                rng=self._rng,
                persister=self._persister,
                facts=LeaderFacts(node),
                config=node.configs.group_config,
                sessions_max=settings[kafka_configs.MAX_SHARE_SESSIONS],
                metrics=PartitionLeaderMetrics(
                    self._registry,
                    self._runtime.meter("partition_leader"),
                    by_partition=settings[PROGRESS_BY_PARTITION],
                    rows_max=settings[PROGRESS_ROWS_MAX],
                ),
                progress_interval_ms=settings[PROGRESS_INTERVAL_MS],
                topic_log=TopicLogSettings(jump_offsets=settings[LOST_TAIL_JUMP]),
                caches=TailCaches(total_bytes=settings[TAIL_CACHES_BYTES]),
                operation_timeout_ms=settings[kafka_configs.PERSISTER_TIMEOUT_MS],
                fetch_max_bytes=settings[kafka_configs.FETCH_MAX_BYTES],
                enabled=node.configs.share_enabled,
                transactions=self._transactions,
                letters=LetterView(node, self._clock, lambda: self._store.record_log.history),
                transport=self._transport,
                starts=self._topic_starts(),
                consumed_interval_ms=settings[CONSUMED_INTERVAL_MS],
                retention_interval_ms=settings[RETENTION_INTERVAL_MS],
                leader_of=self._leader_address,
                coordinator_of=self._coordinator_address,
                address=lambda: node.registry.record.address,
                clock_doubt=str if self._store.watch is None else self._store.watch.time.doubt,
                store=self._store.watch,
                leaders=lambda: len(self._leader_addresses()),
            )
        )

    def _topic_starts(self) -> TopicStartOffsets:
        return TopicStartOffsets(
            self._transport,
            self._state_address,
            shards=self._settings[kafka_configs.STATE_SHARDS],
            local=self._state.dispatcher if self._state is not None else None,
        )

    def _host_options(self, write_timeout_ms: int, entries_per_key: int) -> HostOptions:
        return HostOptions(
            write_timeout_ms=write_timeout_ms,
            waiting_max=self._settings[SHARD_QUEUE_MAX],
            compaction=CompactionLimits(
                entries_min=self._settings[COMPACTION_ENTRIES_MIN],
                entries_per_key=entries_per_key,
                history_ms=self._settings[HISTORY_MS],
                readers_max_lag_ms=self._settings[READERS_MAX_LAG_MS],
            ),
        )

    # ---- lookups for roles

    def _addresses(self) -> list[str]:
        return [node.internal_address for node in self._node.registry.nodes()]

    def _leader_addresses(self) -> set[str]:
        return {node.internal_address for node in self._node.registry.nodes() if ROLE_PARTITION_LEADER in node.roles}

    def _state_address(self, index: int) -> str | None:
        owner = shard_owner(self._node, ShardKind.SHARE_STATE, index)
        return None if owner is None else owner.node.internal_address

    def _leader_address(self, partition: TopicIdPartition) -> str | None:
        owner = self._node.owners.lookup(topic_shard(partition))
        return None if owner is None else owner.node.internal_address

    def _coordinator_address(self, group_id: str) -> str | None:
        index = shard_index(group_id, self._settings[kafka_configs.GROUP_SHARDS])
        owner = shard_owner(self._node, ShardKind.GROUP, index)
        return None if owner is None else owner.node.internal_address

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _quarantined(host: ShardHost[Any, Any]) -> int:
    return 0 if host.shard is None else len(host.shard.quarantined())
