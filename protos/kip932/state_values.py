"""The commands on share-partition state and their replies, as leaders, persister and share coordinator exchange them.

They are values without behaviour; `state_batches` combines batches. Each command names its share-partition. Its outcome
is its reply, or the KafkaError of its refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kip932.errors import FencedLeaderEpochError, KafkaError, NotCoordinatorError
from kip932.failures import Failure
from kip932.ids import SharePartitionKey
from kip932.state_batches import NO_STATS, StateBatch, WriteStats


class InitializeState(NamedTuple):
    """Create or reset state (GC-73). `start_offset` −1: the leader chooses it."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class ReadState(NamedTuple):
    """Read for the leader of (`leader_epoch`, `generation`), and fence older leaders (SC-38, PL-602)."""

    key: SharePartitionKey
    leader_epoch: int
    generation: int = 0


class WriteState(NamedTuple):
    """A leader's changes, with the epochs to check (PL-702). `batches`: the changed ranges, in any order.

    A `start_offset` of −1 leaves the stored one unchanged. `failures`: why records were given up (SC-117).
    """

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    generation: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    stats: WriteStats = NO_STATS
    failures: tuple[Failure, ...] = ()
    #: The span for which it is written, if it is traced (CM-216).
    trace: Any = None


class DeleteState(NamedTuple):
    """Delete state, unless a newer state epoch is stored; `state_epoch` −1: not checked (SC-29)."""

    key: SharePartitionKey
    state_epoch: int = -1


class StateSpan(NamedTuple):
    """The offsets whose state batches a summary must contain (PL-825)."""

    first_offset: int
    last_offset: int


class ReadSummary(NamedTuple):
    """Read start offset and epochs without fencing any leader (SC-50), and the state batches of `span` (PL-825).

    `delayed_at_ms`: also count the records whose delay has not ended at this time, in ms since 1970 (PL-938).
    """

    key: SharePartitionKey
    span: StateSpan | None = None
    delayed_at_ms: int | None = None


StateCommand = InitializeState | ReadState | WriteState | DeleteState | ReadSummary


class StoredState(NamedTuple):
    """The reply to ReadState; `start_offset` −1: the leader chooses it (SC-37, SC-39).

    `recorded`: the read raised the stored leader epoch, so the coordinator counts it as a write (section 6.2); False in
    a reply from another process.
    """

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    recorded: bool = False
    failures: tuple[Failure, ...] = ()


class StateSummary(NamedTuple):
    """Start offset, epochs and counts of a share-partition; the defaults are those of one without state (SC-50).

    `batches`: the state batches of the requested offsets, cut at their bounds (PL-825). `delayed`: the number of
    records whose delay has not ended; −1 when it was not requested, or when an older build replied (PL-938).
    `failures`: why records of the requested offsets were given up, cut at their bounds (SC-117).
    """

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = -1
    delivery_complete_count: int = -1
    archived_by_limit: int = -1
    archived_by_reject: int = -1
    batches: tuple[StateBatch, ...] = ()
    delayed: int = -1
    failures: tuple[Failure, ...] = ()


StateReply = StoredState | StateSummary | None
StateOutcome = StateReply | KafkaError


class StoredStart(NamedTuple):
    """The stored progress of a share-partition (SC-116): its start offset, −1 if its leader has not chosen one yet, and
    how many records from there on are finished, −1 if that is unknown (SC-118)."""

    start_offset: int
    delivery_complete_count: int


#: Share-partitions of some topics, each with its stored progress (SC-116).
TopicStarts = Sequence[tuple[SharePartitionKey, StoredStart]]


class StaleLeaderError(FencedLeaderEpochError):
    """A newer leader epoch is stored. The error has it, so that the leader can claim above it (SC-29a, CM-13)."""

    def __init__(self, message: str, leader_epoch: int) -> None:
        super().__init__(message)
        self.leader_epoch = leader_epoch


class MovedStateError(NotCoordinatorError):
    """Another node serves the state, at `address` by the hints of the node that refused (CM-14)."""

    def __init__(self, message: str, address: str) -> None:
        super().__init__(message)
        self.address = address
