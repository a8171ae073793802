"""The effects of a share-partition: frozen values that `SharePartition.handle` returns, in the order in which they must
happen.

The host carries each out and feeds the result back as an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kip932.errors import KafkaError
from kip932.failures import Failure
from kip932.state_batches import ArchivedRange, StateBatch
from partition_leader.share_partition.core.status import DropReason

# Bits of Persist.cause (PM-20 X2). A write for several operations has several bits (PL-702).
CAUSE_ACK: Final = 1
CAUSE_SESSION_RELEASE: Final = 2
CAUSE_LOCK_EXPIRY: Final = 4
CAUSE_DLQ: Final = 8
CAUSE_ADMIN: Final = 16
CAUSE_INIT: Final = 32
CAUSE_CATCH_UP: Final = 64  # PL-621: not for an operation, but because memory is ahead of the stored state

# Causes of a dead letter (PL-905).
DLQ_CLIENT_REJECT: Final = "client reject"
DLQ_DELIVERY_COUNT_EXCEEDED: Final = "delivery count exceeded"


class AcquiredRange(NamedTuple):
    """One entry of acquired_records: offsets with one holder and one delivery count (PL-251)."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Counters(NamedTuple):
    """What only the leader knows about a write (PM-20 X3, X4).

    All are numbers of records, except max_dc and sum_dc: the maximum and the sum of the delivery counts of the records
    that the write finishes.
    """

    n_accept: int = 0
    n_release: int = 0
    n_reject: int = 0
    n_timeout: int = 0
    n_limit: int = 0
    n_given_back: int = 0
    max_dc: int = 0
    sum_dc: int = 0

    def plus(self, other: Counters) -> Counters:
        """The combined counters: the sums, and the larger max_dc."""
        return total([self, other])


NO_COUNTERS: Final = Counters()


def total(counters: Iterable[Counters]) -> Counters:
    """The combined counters: the sums, and the largest max_dc."""
    counters = [some for some in counters if some is not NO_COUNTERS]
    if len(counters) < 2:
        return counters[0] if counters else NO_COUNTERS
    columns = list(zip(*counters, strict=True))
    sums = [sum(column) for column in columns]
    sums[_MAX_DC] = max(columns[_MAX_DC])
    return Counters(*sums)


_MAX_DC: Final = Counters._fields.index("max_dc")


class Persist(NamedTuple):
    """Write the share-partition's state (PL-702), then send `Persisted` or `PersistFailed` with the same `write_id`. At
    most one write is outstanding (PL-705).

    This is not yet a `WriteState`: the host adds the leader epoch and the high watermark, which the core does not know,
    and converts the ends of delays, if there are any (`has_delays`), to wall-clock instants (PL-934). `archived`:
    records that the write gives up for good, including those below the start offset (PM-20 X9). `failures`: why members
    gave records up (PL-942).
    """

    write_id: int
    generation: int
    state_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]
    cause: int
    counters: Counters
    speo: int
    has_delays: bool = False
    archived: tuple[ArchivedRange, ...] = ()
    failures: tuple[Failure, ...] = ()


class Reply(NamedTuple):
    """Answer an Acknowledge or Release. If `persisted` is False, it needed no write: check the lease first (PL-411).

    `acknowledged`: how many records of each acknowledge type took effect, in the order of the types' values; empty for
    none (PL-413).
    """

    op_id: int
    error: KafkaError | None
    persisted: bool
    acknowledged: Sequence[int] = ()


class ReadLog(NamedTuple):
    """The fetch has the fetch lock (PL-206): read the log from `first_offset` on, at most `offsets_max` offsets. Then
    send `Acquire`, or `ReleaseFetchLock` if the read returned no batches or the fetch acquires nothing."""

    fetch_id: int
    first_offset: int
    offsets_max: int


class Acquired(NamedTuple):
    """The result of an Acquire: ascending, disjoint ranges, perhaps none."""

    fetch_id: int
    ranges: tuple[AcquiredRange, ...]

    @property
    def record_count(self) -> int:
        """How many offsets were acquired; they count against the request's max_records (PL-204, PL-803)."""
        return sum(last - first + 1 for first, last, _ in self.ranges)


@dataclass(frozen=True, slots=True)
class Wake:
    """A fetch may have become possible here: let the waiters try again, in order of arrival (PL-214)."""


@dataclass(frozen=True, slots=True)
class ReadBackWanted:
    """Send ReadShareGroupState with the same leader epoch and this generation, in every retry too (PL-707)."""

    generation: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Write these records to the dead-letter queue; send `DlqDone` for those that were written or given up, all at once
    or piece by piece, however long that takes (PL-904, PL-907). `failures`: the reasons of these records, ascending
    (PL-943)."""

    dead_letter_id: int
    ranges: tuple[AcquiredRange, ...]
    cause: str
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Archived:
    """Report that these records, which were never accepted, will not be delivered again; this is now stored
    (PL-810)."""

    cause: str
    ranges: tuple[AcquiredRange, ...]

    @property
    def records(self) -> int:
        """The number of these records."""
        return sum(last - first + 1 for first, last, _ in self.ranges)


@dataclass(frozen=True, slots=True)
class Activated:
    """The share-partition is ACTIVE: let parked fetches try again (PL-214)."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Take the share-partition out of the cache and wake its waiters (PL-630, PL-631). If `retiring`, continue to feed
    it events until `Dropped`; until then fetches park, as they do while it is INITIALIZING."""

    error: KafkaError
    retiring: bool
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Dropped:
    """The share-partition is finished: forget it. A successor's generation must exceed `generation` (PL-602)."""

    error: KafkaError
    generation: int


Effect = (
    Persist | Reply | ReadLog | Acquired | Wake | ReadBackWanted | DeadLetter | Archived | Activated | Fenced | Dropped
)
