"""What each role sees of the cluster: the runtime's metadata image, hints and configs, as that role's protocols."""

from __future__ import annotations

from kip932.ids import TopicIdPartition
from partition_leader.partition_owners import topic_shard
from partition_leader.share.group_view import EffectiveGroup
from partition_leader.topic_rpc.log_directory import Leader
from shard_runtime.cluster.metadata_log import MetadataLog
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.cluster.owners import Owner, OwnerAddress, host_port
from shard_runtime.config import kafka_configs
from shard_runtime.config.effective_configs import EffectiveConfigs
from shard_runtime.record_log.protocol import ShardId, ShardKind

_NO_TOPIC = ""


class StateMetadata:
    """The metadata for the share coordinator (`MetadataView`, SC-82)."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    def partition_count(self, topic_id: bytes) -> int | None:
        """The topic's number of partitions; None when there is no image yet, or no such topic."""
        found = self._metadata.image.by_id.get(topic_id)
        return None if found is None else found.partitions

    def settled_since(self, now_ms: int) -> bool:
        """Whether the image has everything that was in the metadata log at `now_ms`."""
        return self._metadata.complete_since_ms >= now_ms


class LeaderFacts:
    """Topics and other leaders, for the partition leader (`TopicFacts`)."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    def partitions(self, topic_id: bytes) -> int | None:
        """The topic's number of partitions."""
        found = self._node.metadata.image.by_id.get(topic_id)
        return None if found is None else found.partitions

    def name(self, topic_id: bytes) -> str:
        """The topic's name."""
        found = self._node.metadata.image.by_id.get(topic_id)
        return "" if found is None else found.name

    def max_message_bytes(self, topic_id: bytes) -> int:
        """The topic's `max.message.bytes`."""
        return self._node.configs.topic(self._name(topic_id), kafka_configs.MAX_MESSAGE_BYTES)

    def retention(self, topic_id: bytes) -> tuple[int, int]:
        """The topic's `retention.ms` and `retention.bytes`."""
        name, effective = self._name(topic_id), self._node.configs
        return effective.topic(name, kafka_configs.RETENTION_MS), effective.topic(name, kafka_configs.RETENTION_BYTES)

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """The live node that owns the partition by the hints; None when none is known."""
        owner = self._node.owners.look(topic_shard(partition))
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


def client_address_of(owner: Owner | None) -> OwnerAddress | None:
    """The address at which clients reach an owner."""
    return None if owner is None else _address(owner.node.node_id, owner.node.address)


def peer_address_of(owner: Owner | None) -> OwnerAddress | None:
    """The address at which other nodes reach an owner; clients do not get it (CM-80)."""
    return None if owner is None else _address(owner.node.node_id, owner.node.peer_address)


def _address(node_id: int, text: str) -> OwnerAddress:
    where = host_port(text)
    return OwnerAddress(node_id, where.host, where.port)


def shard_owner(node: ClusterNode, kind: ShardKind, index: int) -> Owner | None:
    """The owner of a numbered shard, by the hints read last."""
    return node.owners.look(ShardId(kind, str(index)))


def effective_group(effective: EffectiveConfigs, group_id: str) -> EffectiveGroup:
    """A group's settings for the partition leader (PL-1002)."""
    return EffectiveGroup(
        lock_duration_ms=effective.group(group_id, kafka_configs.GROUP_LOCK_DURATION_MS),
        delivery_count_limit=effective.group(group_id, kafka_configs.GROUP_DELIVERY_COUNT_LIMIT),
        max_record_locks=effective.group(group_id, kafka_configs.GROUP_MAX_RECORD_LOCKS),
        renew_enabled=effective.group(group_id, kafka_configs.GROUP_RENEW_ENABLE),
        auto_offset_reset=effective.group(group_id, kafka_configs.GROUP_AUTO_OFFSET_RESET),
        read_committed=effective.group(group_id, kafka_configs.GROUP_ISOLATION_LEVEL) == "read_committed",
    )
