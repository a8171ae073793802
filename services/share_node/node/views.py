"""Each role's view of the cluster: the runtime's metadata image, hints and configs, as that role's protocols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kafka_listener.ports import NO_TOPIC_ID, Broker
from kip932.ids import TopicIdPartition
from partition_leader.dead_letters.core.destination import Queue, QueueTopic, View
from partition_leader.partition_owners import topic_shard
from partition_leader.topic_rpc.log_directory import Leader
from shard_runtime.clock import Clock
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.cluster.owners import Owner, OwnerAddress, host_port
from shard_runtime.cluster.topic_admin import TopicAdmin
from shard_runtime.config import group_extensions, kafka_configs
from shard_runtime.ownership.placement import NODE_LIVE
from shard_runtime.record_log.cluster_store import NodeRecord
from shard_runtime.record_log.protocol import ShardId, ShardKind

_NO_TOPIC = ""
#: How many partitions without a topic are remembered; one more clears them all.
_MISSING_MAX: Final = 10_000
_NEVER_MS = -1
_DLQ_VERSION = 2  # the first share.version with dead-letter queues (PL-901)


class StateMetadata:
    """The metadata for the share coordinator (`MetadataView`, SC-82)."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    def partition_count(self, topic_id: bytes) -> int | None:
        """The topic's number of partitions; None when there is no image yet, or no such topic."""
        found = self._metadata.image.by_id.get(topic_id)
        return None if found is None else found.partitions

    def settled_since(self, now_ms: int) -> bool:
        """Return whether the image has everything that was in the metadata log at `now_ms`."""
        return self._metadata.complete_since_ms >= now_ms


class LeaderFacts:
    """Topics and other leaders, for the partition leader (`TopicFacts`)."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def partitions(self, topic_id: bytes) -> int | None:
        """The topic's number of partitions; None when the topic is not known."""
        found = self._node.metadata.image.by_id.get(topic_id)
        return None if found is None else found.partitions

    def name(self, topic_id: bytes) -> str:
        """The topic's name; "" when the topic is not known."""
        found = self._node.metadata.image.by_id.get(topic_id)
        return "" if found is None else found.name

    def max_message_bytes(self, topic_id: bytes) -> int:
        """The topic's `max.message.bytes`."""
        return self._node.configs.topic(self._name(topic_id), kafka_configs.MAX_MESSAGE_BYTES)

    def retention(self, topic_id: bytes) -> tuple[int, int]:
        """The topic's `retention.ms` and `retention.bytes`."""
        name, effective = self._name(topic_id), self._node.configs
        return effective.topic(name, kafka_configs.RETENTION_MS), effective.topic(name, kafka_configs.RETENTION_BYTES)

    def consumed(self, topic_id: bytes) -> bool:
        """Return whether the topic has `sharegroups.retention=consumed`."""
        return self._node.configs.topic(self._name(topic_id), kafka_configs.RETENTION_POLICY) == kafka_configs.CONSUMED

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """The live node that owns the partition by the hints; None when none is known."""
        owner = self._node.owners.lookup(topic_shard(partition))
        if owner is None:
            return None
        where = host_port(owner.node.address)
        return Leader(owner.node.node_id, owner.epoch, where.host, where.port)

    def created_under(self, topic_id: bytes) -> str:
        """The store's history when the topic was created."""
        found = self._node.metadata.image.by_id.get(topic_id)
        return "" if found is None else found.created_under

    def _name(self, topic_id: bytes) -> str:
        found = self._node.metadata.image.by_id.get(topic_id)
        return _NO_TOPIC if found is None else found.name


class PartitionLeaders:
    """The leaders of partitions, for the markers of transactions (`Leaders`)."""

    def __init__(self, node: ClusterNode, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._missing: dict[TopicIdPartition, int] = {}

    def address(self, partition: TopicIdPartition) -> str | None:
        """The address at which other nodes reach the partition's leader, by the hints; None when none is known."""
        owner = self._node.owners.lookup(topic_shard(partition))
        return None if owner is None else owner.node.internal_address

    def gone(self, partition: TopicIdPartition) -> bool:
        """Return whether the partition's topic was deleted: it was not known when first asked for, nor is it in an
        image that has everything that was in the metadata log at that time. (A node with older metadata must not
        mistake a new topic for a deleted one: its part of the transaction would get no marker.)"""
        metadata = self._node.metadata
        found = metadata.image.by_id.get(partition.topic_id)
        if found is not None and partition.partition < found.partitions:
            self._missing.pop(partition, None)
            return False
        if len(self._missing) >= _MISSING_MAX:
            self._missing.clear()
        since_ms = self._missing.setdefault(partition, self._clock.now_ms())
        return metadata.sound and metadata.complete_since_ms >= since_ms


class LetterView:
    """The dead-letter queues of groups, for the partition leader (`LetterFacts`). `history`: returns the store's
    history."""

    def __init__(self, node: ClusterNode, clock: Clock, history: Callable[[], str]) -> None:
        self._node = node
        self._admin = TopicAdmin(node.metadata, node.configs, clock, history=history)

    def view(self, group_id: str) -> View:
        """A group's configs, and the topic they name."""
        node, effective = self._node, self._node.configs
        name = effective.group(group_id, kafka_configs.GROUP_DLQ_TOPIC)
        found = node.metadata.image.topics.get(name)
        topic = None
        if found is not None:
            topic = QueueTopic(
                found.topic_id,
                found.partitions,
                effective.topic(name, kafka_configs.TOPIC_DLQ_ENABLE),
                effective.topic(name, kafka_configs.MAX_MESSAGE_BYTES),
            )
        return View(
            complete_since_ms=node.metadata.complete_since_ms if node.metadata.sound else _NEVER_MS,
            served=effective.broker(kafka_configs.SHARE_VERSION) >= _DLQ_VERSION,
            queue=Queue(
                name,
                effective.group(group_id, kafka_configs.GROUP_DLQ_COPY),
                effective.group(group_id, group_extensions.GROUP_DLQ_FAILURE) == "drop",
            ),
            topic=topic,
            prefix=effective.broker(kafka_configs.DLQ_PREFIX),
            creates=effective.broker(kafka_configs.DLQ_AUTO_CREATE),
        )

    def name(self, topic_id: bytes) -> str:
        """The topic's name, "" when it is not known."""
        found = self._node.metadata.image.by_id.get(topic_id)
        return "" if found is None else found.name

    def takes_letters(self, topic_id: bytes) -> bool:
        """Return whether the topic is enabled as a dead-letter topic."""
        name = self.name(topic_id)
        return bool(name) and self._node.configs.topic(name, kafka_configs.TOPIC_DLQ_ENABLE)

    async def create(self, name: str) -> None:
        """Create a dead-letter topic with the cluster's number of partitions. Raises KafkaError."""
        await self._admin.create_topic(name, {kafka_configs.TOPIC_DLQ_ENABLE.name: "true"})


class KafkaCluster:
    """The cluster as Kafka's clients see it (`kafka_listener.ports.Cluster`). `node` returns this node, once it has
    joined. `external`: as clients from elsewhere see it (CM-237)."""

    def __init__(self, node: Callable[[], ClusterNode], *, external: bool = False) -> None:
        self._node = node
        self._address: Callable[[NodeRecord], str] = (
            (lambda record: record.kafka_external_address) if external else (lambda record: record.kafka_address)
        )

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._node().metadata.cluster_id

    @property
    def node_id(self) -> int:
        """The id of this node."""
        return self._node().registry.record.node_id

    def brokers(self) -> Sequence[Broker]:
        """The live nodes that have a Kafka listener, by id; this one also before it has read the list."""
        registry = self._node().registry
        nodes = {each.node_id: each for each in registry.nodes() if each.state == NODE_LIVE}
        nodes.setdefault(registry.record.node_id, registry.record)
        return [self._broker(nodes[number]) for number in sorted(nodes) if self._address(nodes[number])]

    def broker(self, node_id: int) -> Broker | None:
        """The node with this id, also one that is leaving; None when there is none, or it has no Kafka listener."""
        registry = self._node().registry
        found = registry.record if node_id == registry.record.node_id else registry.node(node_id)
        return None if found is None or not self._address(found) else self._broker(found)

    def _broker(self, node: NodeRecord) -> Broker:
        where = host_port(self._address(node))
        return Broker(node.node_id, where.host, where.port, node.rack)

    def topic_name(self, topic_id: bytes) -> str:
        """The topic's name; "" when it is not known."""
        found = self._node().metadata.image.by_id.get(topic_id)
        return "" if found is None else found.name

    def topic_id(self, name: str) -> bytes:
        """The topic's id; NO_TOPIC_ID when it is not known."""
        found = self._node().metadata.image.topics.get(name)
        return NO_TOPIC_ID if found is None else found.topic_id

    def share_version(self) -> int:
        """The cluster's `share.version`."""
        return self._node().configs.broker(kafka_configs.SHARE_VERSION)


def client_address_of(owner: Owner | None) -> OwnerAddress | None:
    """The address at which clients reach an owner."""
    return None if owner is None else _address(owner.node.node_id, owner.node.address)


def peer_address_of(owner: Owner | None) -> OwnerAddress | None:
    """The address at which other nodes reach an owner; clients do not get it (CM-80)."""
    return None if owner is None else _address(owner.node.node_id, owner.node.internal_address)


def _address(node_id: int, text: str) -> OwnerAddress:
    where = host_port(text)
    return OwnerAddress(node_id, where.host, where.port)


def shard_owner(node: ClusterNode, kind: ShardKind, index: int) -> Owner | None:
    """The owner of the shard with this number, according to the hints that were read last."""
    return node.owners.lookup(ShardId(kind, str(index)))
