"""The persister's protocol, its error, and the coordinator of the same process (PL-602, PL-702, PL-707, SC-90)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from kip932.errors import KafkaError, UnknownServerError
from kip932.ids import SharePartitionKey, TopicIdPartition
from kip932.state_values import (
    ReadState,
    ReadSummary,
    StaleLeaderError,
    StateCommand,
    StateOutcome,
    StateSummary,
    StoredState,
    TopicStarts,
    WriteState,
)


class PersisterError(Exception):
    """An operation on one share-partition failed after all retries; `error` is the last one's. Do not retry at once.

    `outcome_unknown`: an attempt may have been applied, now or later: read the stored state before relying on it
    (PL-707).
    """

    def __init__(self, error: KafkaError, outcome_unknown: bool) -> None:
        super().__init__(f"{error.name}: {error.message}")
        self.error = error
        self.outcome_unknown = outcome_unknown

    @property
    def leader_epoch(self) -> int | None:
        """The stored epoch that came with FENCED_LEADER_EPOCH, above which the leader must claim (SC-29a)."""
        return self.error.leader_epoch if isinstance(self.error, StaleLeaderError) else None


class PeerRefusedError(UnknownServerError):
    """Another node does not serve this node, because of its certificate; a log line says why.

    It is not a refusal of a client's own rights or credentials, so clients see UNKNOWN_SERVER_ERROR (PL-731).
    `address`: the other node; `cause`: what it said; `remedy`: what to change.
    """

    def __init__(self, address: str, cause: str, remedy: str) -> None:
        text = "a node that keeps share state refuses this node; its log says why (share_coordinator_refused_this_node)"
        super().__init__(text)
        self.address = address
        self.cause = cause
        self.remedy = remedy


class Persister(Protocol):
    """Reads and writes share-partition state on the nodes of its coordinators. Every operation retries by itself and
    ends within its time-out (PL-723)."""

    async def read(self, command: ReadState) -> StoredState:
        """Read for a leader and fence older leaders. Raises PersisterError; without the state, the leader must not
        acquire records."""
        ...

    async def write(self, command: WriteState) -> None:
        """Persist a change; return when it is durable. Writes of one key are sent one after another [SC-99 R].

        Raises PersisterError; when its `outcome_unknown` is set, read the state back before deciding (PL-707).
        """
        ...

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Create or reset state (GC-73); a start offset of −1: the leader chooses it. Returns each partition's error,
        or None for success."""
        ...

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Delete state unless a newer state epoch than the given one is stored; −1: delete in any case (SC-29).

        UNKNOWN_TOPIC_OR_PARTITION counts as success: there is nothing to delete (SC-48).
        """
        ...

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition], delayed_at_ms: int | None = None
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        """Read start offsets and epochs without fencing any leader. Returns each partition's summary or error. With
        `delayed_at_ms`, summaries also count the records that are still delayed at that time."""
        ...

    async def close(self) -> None:
        """Fail the operations in progress and close the streams."""
        ...


class LeaderPersister(Persister, Protocol):
    """A persister with the operations that only partition leaders need."""

    async def read_summary(self, command: ReadSummary) -> StateSummary:
        """Read the summary of one share-partition with the state batches of a span. Nothing is written and no leader is
        fenced (SC-50, PL-825). Raises PersisterError."""
        ...

    def write_attempts(self, key: SharePartitionKey) -> int:
        """Return how many times the current write of `key` has been sent; 0 when there is none."""
        ...


class LocalCoordinator(Protocol):
    """The share coordinator of the same process (P-12): the same commands and outcomes, without messages."""

    def serves(self, shard: int) -> bool:
        """Return whether this process serves the shard at present. Check it before each `run_one`."""
        ...

    async def run_one(self, command: StateCommand, within_ms: int) -> StateOutcome:
        """Run one command. The outcome comes within the coordinator's write time-out and within `within_ms`."""
        ...

    async def topic_starts(self, topic_ids: frozenset[bytes]) -> Mapping[int, TopicStarts | KafkaError]:
        """Return every group's start offsets in these topics, by each shard that this process serves (SC-116)."""
        ...
