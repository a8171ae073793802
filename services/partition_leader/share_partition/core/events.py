"""The events of a share-partition: frozen values that go into `SharePartition.handle`.

Every event that leads to a decision carries the group's current settings, because they are dynamic (PL-104, PL-301,
PL-1003). The events that every fetch sends are tuples: a tuple costs a third of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kip932.errors import KafkaError
from kip932.failures import Failure
from kip932.state_batches import StateBatch
from shard_runtime.config.group_config import GroupConfig


class BatchHeader(Protocol):
    """The fields of a log batch that an acquire pass needs. The topic log's batches have them, so nothing is copied."""

    @property
    def base_offset(self) -> int:
        """The first offset."""
        ...

    @property
    def last_offset(self) -> int:
        """The last offset, inclusive."""
        ...

    @property
    def producer_id(self) -> int:
        """The id of its producer; −1 if there is none."""
        ...

    @property
    def is_transactional(self) -> bool:
        """Whether it was written within a transaction."""
        ...

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch, which holds no records for consumers."""
        ...

    @property
    def is_abort(self) -> bool:
        """Whether it is the marker of an aborted transaction."""
        ...


class AbortedTransaction(NamedTuple):
    """An aborted transaction that overlaps the data read: its producer, its first offset, and the offset of its marker
    (PL-006)."""

    producer_id: int
    first_offset: int
    last_offset: int


class AckBatch(NamedTuple):
    """Acknowledge types for `first_offset`…`last_offset`: one for all, or one per offset; validated (PL-401).

    `delays`: delays of the releases in ms, one for all or one per offset; empty to use the group's back-off (PL-930).
    `undelivered`: whether a release takes its delivery back, one for all or one per offset; empty means no (PL-941).
    `reason`: why the records are released or rejected; empty means not given (PL-942).
    """

    first_offset: int
    last_offset: int
    types: tuple[int, ...] | bytes
    delays: tuple[int, ...] = ()
    undelivered: tuple[bool, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Initialized:
    """ReadShareGroupState succeeded (PL-602).

    `resolved`: the stored start offset was -1, and `start_offset` was determined by auto.offset.reset. It must be
    written before the share-partition becomes ACTIVE (PL-605, PL-609).
    """

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    resolved: bool
    settings: GroupConfig
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class InitializeFailed:
    """ReadShareGroupState failed, or the start offset could not be found (PL-604)."""

    error: KafkaError


class TakeFetchLock(NamedTuple):
    """A fetch that may take `max_records` wants to read and acquire (PL-206).

    Answered by `ReadLog` if it gets the fetch lock. There is no answer if another fetch has the lock, or if no record
    can be acquired.
    """

    fetch_id: int
    max_records: int
    settings: GroupConfig


class ReleaseFetchLock(NamedTuple):
    """The fetch ends its attempt without acquiring here (PL-206). Has no effect if it does not have the lock."""

    fetch_id: int


class Acquire(NamedTuple):
    """A log read for one fetch has finished: acquire from it (PL-220), and release its fetch lock (PL-206).

    `last_read_offset` is ignored if there are no batches. With `read_committed`, records of `aborted` are left out
    (PL-803). `beside`: the fetch has already acquired from another share-partition, so it leaves throttled batches to
    other fetches (PL-243). Always answered by `Acquired`, perhaps without ranges.
    """

    fetch_id: int
    member_id: str
    mode: int
    batch_size: int
    max_records: int
    fetch_offset: int
    batches: Sequence[BatchHeader]
    last_read_offset: int
    read_committed: bool
    aborted: tuple[AbortedTransaction, ...]
    settings: GroupConfig
    beside: bool = False


class Acknowledge(NamedTuple):
    """The acknowledgements of one request of a member (PL-404 … PL-415). Answered by `Reply`."""

    op_id: int
    member_id: str
    batches: tuple[AckBatch, ...]
    settings: GroupConfig


@dataclass(frozen=True, slots=True)
class Release:
    """Release what a member holds: all of it if its session ended (PL-520), or only `ranges`, which were acquired for
    one response (PL-505).

    A range is (first, last, delivery count). A record with another count has been acquired again since, and stays with
    its holder. Answered by `Reply`, whose error never reaches a client (PL-521).
    """

    op_id: int
    member_id: str
    settings: GroupConfig
    ranges: Sequence[tuple[int, int, int]] | None = None


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """The log now starts at `log_start_offset` (PL-620)."""

    log_start_offset: int


@dataclass(frozen=True, slots=True)
class HoleFound:
    """The log holds no record from `fetch_offset`, the next offset to fetch, to `end`, exclusive (CM-47)."""

    fetch_offset: int
    end: int


class Persisted(NamedTuple):
    """The write is in the store (PL-412)."""

    write_id: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """The write failed for good. `outcome_unknown`: the store may have applied it, or may still do so (PL-707)."""

    write_id: int
    error: KafkaError
    outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The state that the share coordinator holds, read with the generation that `ReadBackWanted` named (PL-707)."""

    generation: int
    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class ReadBackFailed:
    """The read-back did not succeed within its time limit (PL-707): the share-partition retires."""

    generation: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `next_deadline` returned has come: that of a lock (PL-303), of a write (PL-621), or of the end of
    retiring (PL-631)."""

    settings: GroupConfig


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """A group config changed: waiters try again (PL-214)."""

    settings: GroupConfig


@dataclass(frozen=True, slots=True)
class DlqDone:
    """These ascending spans of a `DeadLetter` are written, or given up for good; None means all of it (T15, PL-904)."""

    dead_letter_id: int
    spans: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class DlqPostponed:
    """These spans of a `DeadLetter` will not be written for this object; None means all of it. The records stay
    Archiving, and a successor sends them again (PL-921). Only for a share-partition that is retiring."""

    dead_letter_id: int
    spans: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Retire:
    """Finish queued writes, releases and the dead-letter flow, then drop (PL-523, PL-631)."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class Drop:
    """Leadership is lost, or the partition was deleted: stop at once (PL-631, PL-632)."""

    error: KafkaError


Event = (
    Initialized
    | InitializeFailed
    | TakeFetchLock
    | ReleaseFetchLock
    | Acquire
    | Acknowledge
    | Release
    | LogStartMoved
    | HoleFound
    | Persisted
    | PersistFailed
    | ReadBack
    | ReadBackFailed
    | Tick
    | SettingsChanged
    | DlqDone
    | DlqPostponed
    | Retire
    | Drop
)
