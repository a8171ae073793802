"""The commands that a shard of share state takes in addition to those of `kip932.state_values`, and its replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kip932.ids import SharePartitionKey
from kip932.state_values import StateCommand


@dataclass(frozen=True, slots=True)
class CommandBatch:
    """Commands for different keys of one shard, decided together; each succeeds or fails by itself (SC-12, P-2).

    The reply is a tuple with the reply, or the KafkaError of its refusal, for each command in order.
    """

    commands: tuple[StateCommand, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Tombstone the keys of deleted topics, a bounded number per command (SC-80). The reply is a `Removed`."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class RemoveOrphans:
    """Tombstone those of `keys` whose topic is not in the complete metadata [SC-80 R]. The reply is a `Removed`."""

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class DropDamaged:
    """Tombstone those of `keys` whose state is damaged, as an operator decided (CM-114). The reply is a `Removed`."""

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class CopyCold:
    """Write cold copies of those of `keys` that changed long enough ago (SC-73…SC-75). The reply is their number."""

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class ListStarts:
    """Read the start offsets, in some topics, of every group with state here (SC-116). The reply is a tuple of (key,
    start offset), one for each share-partition."""

    topic_ids: frozenset[bytes]


ShareCommand = StateCommand | CommandBatch | DeleteTopics | RemoveOrphans | DropDamaged | CopyCold | ListStarts


class Removed(NamedTuple):
    """How many keys a command tombstoned, and how many it left for the next command because of its bound."""

    keys: int
    remaining: int


class MetadataView(Protocol):
    """The part of the cluster's metadata image that a shard reads."""

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return the topic's number of partitions; None when there is no image yet or it lacks the topic (SC-82)."""
        ...

    def settled_since(self, now_ms: int) -> bool:
        """Return whether the image has everything that was in the metadata log at `now_ms`. Only then does None from
        `partition_count` mean that the topic does not exist."""
        ...
