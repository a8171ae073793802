"""One process as a member of the cluster: node list, metadata, ownership and wakes, wired once for every role.

Call `join` before serving, `start` to take shards, then `leave` and `stop` to end (CM-4). The process's composition
root owns the store connections, the RPC server and the services; it passes `serve` the owners for its roles' shards.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Final

import structlog

from kip932.store_settings import (
    STORE_FSYNC_ALWAYS,
    STORE_REPLICAS,
    STORE_WHOLE_HISTORIES,
)
from shard_runtime.clock import Clock
from shard_runtime.cluster.deleted_topics import DeletedTopics
from shard_runtime.cluster.metadata import MetadataImage
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.cluster.nodes import NODES_CHANGED, NodeDescription, NodeRegistry
from shard_runtime.cluster.owners import Owners
from shard_runtime.cluster.service import ClusterService, NodeLookups
from shard_runtime.cluster.topic_admin import Transactional
from shard_runtime.config.effective_configs import EffectiveConfigs
from shard_runtime.config.kafka_configs import GROUP_SHARDS, STATE_SHARDS
from shard_runtime.config.process_settings import (
    LEASE_MS,
    RENEW_INTERVAL_MS,
    REPLAYS_MAX,
    Settings,
)
from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity
from shard_runtime.ownership.ownership import Ownership, OwnershipOptions, ShardOwner
from shard_runtime.record_log.cluster_store import ClusterStore
from shard_runtime.record_log.protocol import LogError, RecordLog, ShardId, ShardKind

log = structlog.get_logger(__name__)

#: The store's keys for the shard counts, which are fixed for the life of a cluster (GC-1, SR-2).
SHARDS_FIXED: Final = (("gc:config", GROUP_SHARDS), ("sgs:config", STATE_SHARDS))


class ClusterNode:
    """This process in the cluster. `taken` is called when another process has taken this node's name."""

    def __init__(
        self,
        record_log: RecordLog,
        store: ClusterStore,
        clock: Clock,
        settings: Settings,
        *,
        me: NodeDescription,
        cluster_id: str,
        taken: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.metadata = MetadataLog(store, clock, cluster_id)
        self.registry = NodeRegistry(
            store,
            me,
            history=lambda: record_log.history,
            changed=self._changed,
            taken=taken,
            interval_ms=settings[RENEW_INTERVAL_MS],
            ttl_ms=settings[LEASE_MS],
        )
        self.owners = Owners(store, clock, self.registry.node)
        self.configs = EffectiveConfigs(settings, self.metadata, lambda: self.registry.record.node_id)
        self.ownership: Ownership | None = None
        self._deleted_topics = DeletedTopics(record_log, store, self.metadata, clock, settings[LEASE_MS])
        self._log = record_log
        self._store = store
        self._clock = clock
        self._me = me
        self._owner_factories: dict[ShardKind, Callable[[ShardId], ShardOwner]] = {}
        self._owned: dict[ShardId, ShardOwner] = {}
        self._fixed: frozenset[ShardId] = frozenset()
        self._topic_shards: frozenset[ShardId] | None = None
        self._all_shards: frozenset[ShardId] = frozenset()
        self._listener: asyncio.Task[None] | None = None

    def service(
        self,
        transactions: Transactional | None = None,
        circle: Callable[[str, str], str] = lambda group_id, topic: "",
    ) -> ClusterService:
        """Return the ClusterService of this node. `circle`: see `ConfigAdmin`."""
        return ClusterService(
            self.metadata,
            self.registry,
            self.owners,
            self.configs,
            clock=self._clock,
            transactions=transactions,
            history=lambda: self._log.history,
            circle=circle,
        )

    def lookups_for_nodes(self) -> NodeLookups:
        """Return the part of this node's ClusterService that other nodes may call."""
        settings = self.settings
        return NodeLookups(self.metadata, self.registry, self.owners, settings[GROUP_SHARDS], settings[STATE_SHARDS])

    def serve(self, kind: ShardKind, owner_of: Callable[[ShardId], ShardOwner]) -> None:
        """Let this process own shards of `kind`; `owner_of` returns a shard's owner. Call it before `start`."""
        self._owner_factories[kind] = owner_of
        counts = {ShardKind.GROUP: GROUP_SHARDS, ShardKind.SHARE_STATE: STATE_SHARDS}
        if kind in counts:
            self._fixed |= {ShardId(kind, str(number)) for number in range(self.settings[counts[kind]])}

    async def join(self) -> None:
        """Check that the store belongs to this process's cluster, load the metadata, enter the node list.

        Raises LogError, saying what to do, when the store belongs to another cluster, when a number of shards differs
        from the one the cluster was created with, or when another process has this node's name.
        """
        await self.metadata.load()
        for key, setting in SHARDS_FIXED:
            wanted = str(self.settings[setting])
            found = await self._store.constant(key, wanted)
            if found != wanted:
                raise LogError(
                    f"{setting.name} is {wanted} here, but this cluster was made with {found}; it is fixed for "
                    f"the life of a cluster, so set {setting.name}={found}"
                )
        await self.registry.register()
        await self.owners.warm()

    def start(self) -> None:
        """Follow the cluster, and claim the shards that target this node."""
        settings = self.settings
        single = settings[STORE_REPLICAS] == 0
        self.ownership = Ownership(
            self._log,
            self._store,
            self._clock,
            OwnerIdentity(self.registry.record.node_id, self._me.incarnation, self._me.address, self._me.dead),
            shards=self._shards,
            owner_of=self._owner_of,
            nodes=self.registry.nodes,
            deleted=self._is_deleted,
            claimed=self._note_claim,
            forgotten=self._forget,
            terms=LeaseTerms(
                lease_ms=settings[LEASE_MS],
                lossless=single and settings[STORE_FSYNC_ALWAYS],
                durable=not single or settings[STORE_FSYNC_ALWAYS],
                whole=settings[STORE_WHOLE_HISTORIES],
            ),
            options=OwnershipOptions(tick_ms=settings[RENEW_INTERVAL_MS], loads_max=settings[REPLAYS_MAX]),
        )
        self.metadata.subscribe(self._on_metadata)
        self.registry.start()
        self.metadata.start()
        self._listener = asyncio.get_running_loop().create_task(self._listen())
        self.ownership.start()
        if ShardKind.TOPIC in self._owner_factories:
            self._deleted_topics.start()

    async def leave(self) -> None:
        """Become `leaving`: shards no longer target this node, but it keeps those it owns. Drain the server next."""
        await self.registry.leave()

    async def stop(self) -> None:
        """Hand every shard over, leave the node list, stop following. Call it after `leave` and the server's drain."""
        if self.ownership is not None:
            await self.ownership.stop()
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        await self._deleted_topics.stop()
        await self.metadata.stop()
        await self.registry.remove()

    def _note_claim(self, shard: ShardId, epoch: int) -> None:
        self.owners.note(shard, self.registry.record.node_id, epoch)

    def _is_deleted(self, shard: ShardId) -> bool:
        return self.metadata.image.is_deleted(shard)

    def _shards(self) -> Collection[ShardId]:
        if ShardKind.TOPIC not in self._owner_factories:
            return self._fixed
        topics = self.metadata.image.shards
        if topics is not self._topic_shards:  # else keep the same set: ownership compares every new one
            self._topic_shards, self._all_shards = topics, self._fixed | topics
        return self._all_shards

    def _owner_of(self, shard: ShardId) -> ShardOwner:
        owner = self._owned.get(shard)
        if owner is None:
            owner = self._owned[shard] = self._owner_factories[shard.kind](shard)
        return owner

    def _forget(self, shard: ShardId) -> None:
        self._owned.pop(shard, None)

    def _changed(self) -> None:
        if self.ownership is not None:
            self.ownership.wake()

    def _on_metadata(self, image: MetadataImage, previous: MetadataImage) -> None:
        if image.shards != previous.shards:
            self._changed()

    async def _listen(self) -> None:
        """On every wake, read the metadata and reconcile; read the node list, too, when the wake is `NODES_CHANGED`."""
        while True:
            try:
                async for reason in self._store.wakes():
                    log.debug("wake_received", reason=reason)
                    if reason == NODES_CHANGED:
                        self.registry.wake()
                    self.metadata.wake()
                    self._changed()
            except LogError as error:
                log.warning("wake_channel_lost", cause=str(error), effect="the periodic tick goes on")
            await asyncio.sleep(1)
