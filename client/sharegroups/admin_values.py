"""What the admin client takes and returns: frozen values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kip932.errors import KafkaError
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC

#: Operations of incremental_alter_configs.
OP_SET: Final = 0
OP_DELETE: Final = 1
OP_APPEND: Final = 2
OP_SUBTRACT: Final = 3


class ConfigResource(NamedTuple):
    """The topic, node or group that configs belong to: `ConfigResource.topic("orders")`."""

    type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(RESOURCE_TOPIC, name)

    @classmethod
    def broker(cls, name: str = "") -> ConfigResource:
        """A node, or all of them with the empty name."""
        return cls(RESOURCE_BROKER, name)

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        """A group."""
        return cls(RESOURCE_GROUP, name)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    num_partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; leader and epoch are −1 without a live leader."""

    partition: int
    leader: int
    leader_epoch: int
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic; with an error the rest is empty."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionDescription, ...]
    is_internal: bool = False
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster and its live nodes."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group of list_groups (GC-121)."""

    group_id: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member; `assignment` maps topic names to partition numbers."""

    member_id: str
    client_id: str
    client_host: str
    rack_id: str | None
    member_epoch: int
    subscription: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """One share group (GC-126)."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node | None


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """Start offset of a share-partition; unknown values are None (CL-46).

    `archived_by_limit` and `archived_by_reject` count records that will not be delivered again though no consumer
    accepted them: those at the delivery limit, and rejected ones. Both begin at 0 when the group begins with the
    partition, and again when its offset is reset.
    """

    start_offset: int
    leader_epoch: int | None
    lag: int | None
    archived_by_limit: int | None = None
    archived_by_reject: int | None = None

    @property
    def archived(self) -> int | None:
        """The sum of both; None when they are unknown."""
        if self.archived_by_limit is None or self.archived_by_reject is None:
            return None
        return self.archived_by_limit + self.archived_by_reject


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config; `synonyms` are (name, value, source number) from the nearest to the farthest."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[str, str | None, int], ...] = ()
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """One change: `AlterConfig("retention.ms", "60000")`, or with OP_DELETE and no value."""

    name: str
    value: str | None = None
    operation: int = OP_SET
