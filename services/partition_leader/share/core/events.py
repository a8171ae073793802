"""What may happen to a share-partition: frozen facts that go into `SharePartition.handle`.

Owns no behaviour. Every event that leads to a decision carries the group's settings of that moment, because they are
dynamic (PL-104, PL-301, PL-1003). The events of every fetch are tuples: those cost a third of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kip932.errors import KafkaError
from kip932.state_batches import StateBatch


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The group's effective settings at the moment of an event (PL-1002: already clamped)."""

    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renew_enabled: bool = True
    dlq_enabled: bool = False


class BatchHeader(Protocol):
    """What an acquire pass asks of a batch of the log; a stored batch is one as it stands, so nothing is copied."""

    @property
    def base_offset(self) -> int:
        """First offset."""
        ...

    @property
    def last_offset(self) -> int:
        """Last offset, inclusive."""
        ...

    @property
    def producer_id(self) -> int:
        """−1: none."""
        ...

    @property
    def is_transactional(self) -> bool:
        """Written within a transaction."""
        ...

    @property
    def is_control(self) -> bool:
        """A control batch: no records for consumers."""
        ...

    @property
    def is_abort(self) -> bool:
        """The ABORT marker of a transaction."""
        ...


class LogBatch(NamedTuple):
    """Header facts of one batch of a log read (PL-006); nothing here needs the records to be parsed (P-7)."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False


class AbortedTransaction(NamedTuple):
    """An aborted transaction that overlaps the read data: the producer and its first offset (PL-006)."""

    producer_id: int
    first_offset: int


class AckBatch(NamedTuple):
    """Acknowledge types for `first_offset`…`last_offset`: one for all, or one per offset; validated before (PL-401)."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...] | bytes


@dataclass(frozen=True, slots=True)
class Initialized:
    """ReadShareGroupState succeeded (PL-602). `resolved`: the stored start offset was -1 and `start_offset` was found
    by auto.offset.reset, so it must be written before the share-partition becomes ACTIVE (PL-605, PL-609)."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    resolved: bool
    settings: GroupSettings


@dataclass(frozen=True, slots=True)
class InitializeFailed:
    """ReadShareGroupState, or finding the start offset, failed (PL-604)."""

    error: KafkaError


class TakeFetchLock(NamedTuple):
    """A fetch that may take `max_records` wants to read and acquire (PL-206). Answered by `ReadLog` when it gets the
    fetch lock; by nothing when another fetch has it, or when nothing can be acquired."""

    fetch_id: int
    max_records: int
    settings: GroupSettings


class ReleaseFetchLock(NamedTuple):
    """The fetch ends its attempt without acquiring here (PL-206). Changes nothing when it does not have the lock."""

    fetch_id: int


class Acquire(NamedTuple):
    """A log read for one fetch has finished; acquire from it (PL-220), and give its fetch lock back (PL-206).
    `last_read_offset` is ignored without batches. `read_committed` with `aborted` applies PL-803. Answered by
    `Acquired` always, perhaps without ranges."""

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
    settings: GroupSettings


class Acknowledge(NamedTuple):
    """Acknowledgements of one member, one request (PL-404 … PL-415). Answered by `Reply`."""

    op_id: int
    member_id: str
    batches: tuple[AckBatch, ...]
    settings: GroupSettings


@dataclass(frozen=True, slots=True)
class Release:
    """The member's session ended: give back what it holds (PL-520), or only what one answer acquired (PL-505): `ranges`
    of (first, last, delivery count). A record with another count was acquired again since and stays with its holder.
    Answered by `Reply`, whose error never reaches a client (PL-521)."""

    op_id: int
    member_id: str
    settings: GroupSettings
    ranges: Sequence[tuple[int, int, int]] | None = None


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """The log now starts at `log_start_offset` (PL-620)."""

    log_start_offset: int


@dataclass(frozen=True, slots=True)
class HoleFound:
    """The log holds no record from `fetch_offset`, where this share-partition stands, to below `end` (CM-47)."""

    fetch_offset: int
    end: int


class Persisted(NamedTuple):
    """The write is durable (PL-412)."""

    write_id: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    """The write failed for good. `outcome_unknown`: any attempt of it may still have been applied (PL-707)."""

    write_id: int
    error: KafkaError
    outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What the coordinator stores, read with the generation that `ReadBackWanted` named (PL-707)."""

    generation: int
    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ReadBackFailed:
    """The read-back failed within its time (PL-707): the share-partition retires."""

    generation: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `next_deadline` named has come: locks (PL-303), PL-621's write, the end of retiring (PL-631)."""

    settings: GroupSettings


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """A group config changed: waiters look again (PL-214)."""

    settings: GroupSettings


@dataclass(frozen=True, slots=True)
class DlqDone:
    """Phase 2 of the dead-letter flow ended, well or badly (T15, PL-904, PL-907)."""

    dead_letter_id: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Drop, but finish queued writes, releases and the dead-letter flow first (PL-523, PL-631)."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class Drop:
    """Leadership is lost or the partition deleted: stop at once (PL-631, PL-632)."""

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
    | Retire
    | Drop
)
