"""The commands that a shard of share state takes, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kip932.errors import FencedLeaderEpochError, KafkaError
from kip932.ids import SharePartitionKey
from kip932.state_batches import StateBatch
from kip932.state_values import StateSpan, StateSummary, StateWrite


class InitializeState(NamedTuple):
    """Create or reset state. `start_offset` −1: the leader chooses it."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    """Read for the leader of (`leader_epoch`, `generation`), and fence older leaders (SC-38)."""

    key: SharePartitionKey
    leader_epoch: int
    generation: int = 0


class WriteState(NamedTuple):
    """A leader's changes, with the epochs to check (PL-702)."""

    key: SharePartitionKey
    write: StateWrite


class DeleteState(NamedTuple):
    """Delete state, unless a newer state epoch is stored; `state_epoch` −1: not checked (SC-29)."""

    key: SharePartitionKey
    state_epoch: int = -1


class ReadSummary(NamedTuple):
    """Read start offset and epochs without fencing any leader (SC-50), and the state batches of `span` (PL-825).
    `delayed_at_ms`: also count the records that wait for the end of a delay at this time of the caller's clock
    (PL-938)."""

    key: SharePartitionKey
    span: StateSpan | None = None
    delayed_at_ms: int | None = None


KeyCommand = InitializeState | ReadState | WriteState | DeleteState | ReadSummary


@dataclass(frozen=True, slots=True)
class CommandBatch:
    """Commands for different keys of one shard, decided together; each succeeds or fails by itself (SC-12, P-2).

    The answer is a tuple with the reply, or the KafkaError of its refusal, for each command in order.
    """

    commands: tuple[KeyCommand, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Tombstone the keys of deleted topics, a bounded number per command (SC-80). The answer is a `Removed`."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class RemoveOrphans:
    """Tombstone those of `keys` whose topic is not in the complete metadata [SC-80 R]. The answer is a `Removed`."""

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class DropDamaged:
    """Tombstone those of `keys` whose state is damaged, as an operator decided (CM-114). The answer is a `Removed`."""

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class CopyCold:
    """Write cold copies of those of `keys` that changed long enough ago (SC-73…SC-75). The answer is their number."""

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class ListStarts:
    """Read the start offsets, in some topics, of every group with state here (SC-116). The answer is a tuple of (key,
    start offset), one for each share-partition."""

    topic_ids: frozenset[bytes]


ShareCommand = KeyCommand | CommandBatch | DeleteTopics | RemoveOrphans | DropDamaged | CopyCold | ListStarts


class StateView(NamedTuple):
    """The answer to ReadState. `recorded`: the read raised the stored leader epoch, so it counts as a write (section
    6.2)."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    recorded: bool


class Removed(NamedTuple):
    """How many keys a command tombstoned, and how many its bound left for the next one."""

    keys: int
    remaining: int


KeyReply = StateView | StateSummary | None
KeyOutcome = StateView | StateSummary | KafkaError | None


class StaleLeaderError(FencedLeaderEpochError):
    """A newer leader epoch is stored. The answer carries it, so that the leader can claim above it (SC-29a, CM-13)."""

    def __init__(self, message: str, leader_epoch: int) -> None:
        super().__init__(message)
        self.leader_epoch = leader_epoch


class MetadataView(Protocol):
    """The part of the cluster's metadata image that a shard reads."""

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return the topic's number of partitions; None when there is no image yet or it lacks the topic (SC-82)."""
        ...

    def settled_since(self, now_ms: int) -> bool:
        """Return whether the image has everything that was in the metadata log at `now_ms`. Only then does None from
        `partition_count` mean that the topic does not exist."""
        ...
