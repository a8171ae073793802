"""What the persister says and hears: its protocol, its values, and how it fails (PL-602, PL-702, PL-707, SC-90)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey, TopicIdPartition
from kip932.state_batches import StateBatch
from kip932.state_values import StateSummary, StateWrite


class StoredState(NamedTuple):
    """What is stored for a share-partition; `start_offset` −1 leaves the choice to the leader (SC-37, SC-39)."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class StateRead(NamedTuple):
    """Who reads: a leader of this epoch and generation; older ones are fenced by it (PL-602)."""

    leader_epoch: int
    generation: int = 0


class StateInit(NamedTuple):
    """How to initialise a share-partition (GC-73); `start_offset` −1 leaves the choice to its leader."""

    state_epoch: int
    start_offset: int


class PersisterError(Exception):
    """An operation on one share-partition failed for good: `error` says how, after all retries.

    `outcome_unknown` is true when any attempt may have been applied, now or later (PL-707). `leader_epoch` is the
    stored one that came with FENCED_LEADER_EPOCH (SC-29a), else None.
    """

    def __init__(self, error: KafkaError, outcome_unknown: bool, leader_epoch: int | None = None) -> None:
        super().__init__(f"{error.name}: {error.message}")
        self.error = error
        self.outcome_unknown = outcome_unknown
        self.leader_epoch = leader_epoch


class Persister(Protocol):
    """Share-partition state, wherever its coordinator is. Every operation ends within its time-out (PL-723)."""

    async def read(self, key: SharePartitionKey, leader_epoch: int, generation: int) -> StoredState:
        """Read for a leader and fence older ones. Raises PersisterError."""
        ...

    async def write(self, key: SharePartitionKey, write: StateWrite) -> None:
        """Persist a change; returns once it is durable. Writes of one key are sent one after another [SC-99 R].

        Raises PersisterError.
        """
        ...

    async def initialize(
        self, group_id: str, partitions: Mapping[TopicIdPartition, StateInit]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Create or reset state; the outcome of every partition, None for success."""
        ...

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Delete state unless a newer state epoch than the given one is stored (−1: whatever is stored), SC-29.

        UNKNOWN_TOPIC_OR_PARTITION counts as success: what is gone needs no deletion (SC-48).
        """
        ...

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition]
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        """Read start offsets and epochs without fencing anybody."""
        ...

    async def close(self) -> None:
        """Fail what is under way and close the streams."""
        ...


class StateOperation(Enum):
    """The five operations; the value is the RPC's name."""

    READ = "ReadShareGroupState"
    WRITE = "WriteShareGroupState"
    INITIALIZE = "InitializeShareGroupState"
    DELETE = "DeleteShareGroupState"
    SUMMARY = "ReadShareGroupStateSummary"


#: What goes with an operation: for DELETE the state epoch, for SUMMARY nothing.
Payload = StateRead | StateWrite | StateInit | int | None
Value = StoredState | StateSummary | None


class Answer(NamedTuple):
    """One share-partition's answer to one attempt. `hint` is the coordinator's address that came with a refusal."""

    error: KafkaError | None = None
    value: Value = None
    leader_epoch: int | None = None
    hint: str | None = None


class LocalCoordinator(Protocol):
    """The share coordinator of this very process (P-12): same rules, no messages."""

    def owns(self, shard_index: int) -> bool:
        """Whether this process serves the shard at present."""
        ...

    async def perform(
        self, operation: StateOperation, key: SharePartitionKey, payload: Payload, within_ms: int
    ) -> Answer:
        """Run one operation; answered within the coordinator's write time-out, and `within_ms`."""
        ...
