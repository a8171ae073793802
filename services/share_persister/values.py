"""The persister's protocol, its values and its error (PL-602, PL-702, PL-707, SC-90)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey, TopicIdPartition
from kip932.state_batches import StateBatch
from kip932.state_values import DelayedAt, StateSpan, StateSummary, StateWrite


class StoredState(NamedTuple):
    """A share-partition's stored state; `start_offset` −1: the leader chooses it (SC-37, SC-39)."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class StateRead(NamedTuple):
    """The reading leader's epoch and generation; the read fences older leaders (PL-602)."""

    leader_epoch: int
    generation: int = 0


class StateInit(NamedTuple):
    """The initial state of a share-partition (GC-73); `start_offset` −1: its leader chooses it."""

    state_epoch: int
    start_offset: int


class PersisterError(Exception):
    """An operation on one share-partition failed after all retries; `error` is the last one's. Do not retry at once.

    `outcome_unknown`: an attempt may have been applied, now or later: read the stored state before relying on it
    (PL-707). `leader_epoch`: the stored epoch that came with FENCED_LEADER_EPOCH, above which the leader must claim
    (SC-29a), else None.
    """

    def __init__(self, error: KafkaError, outcome_unknown: bool, leader_epoch: int | None = None) -> None:
        super().__init__(f"{error.name}: {error.message}")
        self.error = error
        self.outcome_unknown = outcome_unknown
        self.leader_epoch = leader_epoch


class Persister(Protocol):
    """Reads and writes share-partition state on the nodes of its coordinators. Every operation retries by itself and
    ends within its time-out (PL-723)."""

    async def read(self, key: SharePartitionKey, leader_epoch: int, generation: int) -> StoredState:
        """Read for a leader and fence older leaders. Raises PersisterError; without the state, the leader must not
        acquire records."""
        ...

    async def write(self, key: SharePartitionKey, write: StateWrite) -> None:
        """Persist a change; return when it is durable. Writes of one key are sent one after another [SC-99 R].

        Raises PersisterError; when its `outcome_unknown` is set, read the state back before deciding (PL-707).
        """
        ...

    async def initialize(
        self, group_id: str, partitions: Mapping[TopicIdPartition, StateInit]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Create or reset state. Returns each partition's error, or None for success."""
        ...

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Delete state unless a newer state epoch than the given one is stored; −1: delete in any case (SC-29).

        UNKNOWN_TOPIC_OR_PARTITION counts as success: there is nothing to delete (SC-48).
        """
        ...

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition], delayed_at: DelayedAt | None = None
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        """Read start offsets and epochs without fencing any leader. Returns each partition's summary or error. With
        `delayed_at`, summaries also count the records that wait for the end of a delay at that time."""
        ...

    async def close(self) -> None:
        """Fail the operations under way and close the streams."""
        ...


class LeaderPersister(Persister, Protocol):
    """A persister with the operations that only partition leaders need."""

    async def look(self, key: SharePartitionKey, span: StateSpan) -> StateSummary:
        """Read the summary of one share-partition with the state batches of `span`. Nothing is written and no leader is
        fenced (SC-50, PL-825). Raises PersisterError."""
        ...

    def write_attempts(self, key: SharePartitionKey) -> int:
        """Return how often the present write of `key` has been sent; 0 when none is under way."""
        ...


class StateOperation(Enum):
    """The five operations; the value is the RPC's name."""

    READ = "ReadShareGroupState"
    WRITE = "WriteShareGroupState"
    INITIALIZE = "InitializeShareGroupState"
    DELETE = "DeleteShareGroupState"
    SUMMARY = "ReadShareGroupStateSummary"


#: An operation's argument: for DELETE the state epoch; for SUMMARY None, the span of the batches to return, or the time
#: at which to count delayed records.
Payload = StateRead | StateWrite | StateInit | StateSpan | DelayedAt | int | None
Value = StoredState | StateSummary | None


class Answer(NamedTuple):
    """One share-partition's answer to one attempt. `hint`: the coordinator's address, if a refusal contained it."""

    error: KafkaError | None = None
    value: Value = None
    leader_epoch: int | None = None
    hint: str | None = None


#: Share-partitions of some topics, each with its stored start offset; −1: its leader has not chosen one yet.
TopicStarts = Sequence[tuple[SharePartitionKey, int]]


class LocalCoordinator(Protocol):
    """The share coordinator of the same process (P-12): the same rules, without messages."""

    def owns(self, shard_index: int) -> bool:
        """Return whether this process serves the shard at present. Check it before each `perform`."""
        ...

    async def perform(
        self, operation: StateOperation, key: SharePartitionKey, payload: Payload, within_ms: int
    ) -> Answer:
        """Run one operation. The answer comes within the coordinator's write time-out and within `within_ms`."""
        ...

    async def topic_starts(self, topic_ids: frozenset[bytes]) -> Mapping[int, TopicStarts | KafkaError]:
        """Return every group's start offsets in these topics, by each shard that this process serves (SC-116)."""
        ...
