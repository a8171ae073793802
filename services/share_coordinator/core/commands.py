"""What may be asked of a shard of share state, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kip932.errors import FencedLeaderEpochError, KafkaError
from kip932.ids import SharePartitionKey
from kip932.state_batches import StateBatch
from kip932.state_values import StateSummary, StateWrite


class InitializeState(NamedTuple):
    """Create or reset state; `state_epoch` −1 skips the check, `start_offset` −1 leaves the choice to the leader."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    """Read for a leader of (`leader_epoch`, `generation`), and fence older ones (SC-38)."""

    key: SharePartitionKey
    leader_epoch: int
    generation: int = 0


class WriteState(NamedTuple):
    """A leader's changes (PL-702)."""

    key: SharePartitionKey
    write: StateWrite


class DeleteState(NamedTuple):
    """Delete state; a newer stored state epoch refuses it, −1 skips the check (SC-29)."""

    key: SharePartitionKey
    state_epoch: int = -1


class ReadSummary(NamedTuple):
    """Read start offset and epochs without fencing anybody (SC-50)."""

    key: SharePartitionKey


KeyCommand = InitializeState | ReadState | WriteState | DeleteState | ReadSummary


@dataclass(frozen=True, slots=True)
class CommandBatch:
    """Commands for different keys of one shard, in one go; each succeeds or fails by itself (SC-12, P-2).

    The answer is a tuple with a reply or the refusing KafkaError for each, in order.
    """

    commands: tuple[KeyCommand, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Topics are gone: tombstone their keys, a bounded number per command (SC-80). Answers a `Removed`."""

    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class RemoveOrphans:
    """Tombstone those of `keys` whose topic the complete metadata does not know [SC-80 R]. Answers a `Removed`."""

    keys: tuple[SharePartitionKey, ...]


@dataclass(frozen=True, slots=True)
class CopyCold:
    """Write cold copies of those of `keys` that have aged and changed (SC-73…SC-75). Answers how many."""

    keys: tuple[SharePartitionKey, ...]


ShareCommand = KeyCommand | CommandBatch | DeleteTopics | RemoveOrphans | CopyCold


class StateView(NamedTuple):
    """Answer to ReadState. `recorded`: this read raised the stored leader epoch (it counts as a write, section 6.2)."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    recorded: bool


class Removed(NamedTuple):
    """How many keys a command tombstoned, and how many more it would have if it were not bounded."""

    keys: int
    remaining: int


KeyReply = StateView | StateSummary | None
KeyOutcome = StateView | StateSummary | KafkaError | None


class StaleLeaderError(FencedLeaderEpochError):
    """A newer leader epoch is stored; the answer carries it, so that a leader can claim above it (SC-29a, CM-13)."""

    def __init__(self, message: str, leader_epoch: int) -> None:
        super().__init__(message)
        self.leader_epoch = leader_epoch


class MetadataView(Protocol):
    """What a shard knows of the cluster's metadata; the runtime's image, seen through two questions."""

    def partition_count(self, topic_id: bytes) -> int | None:
        """Partitions of a topic; None when there is no image yet or the topic is not in it (SC-82)."""
        ...

    def settled_since(self, now_ms: int) -> bool:
        """Whether the image has been read up to the end of the metadata log as it stood at `now_ms` or later."""
        ...
