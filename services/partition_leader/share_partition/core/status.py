"""The life of a share-partition object (PL-601), and the snapshot of it that tools, metrics and failing tests print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from kip932.state_batches import StateBatch


class Status(Enum):
    """The status of an object (PL-601). RETIRING is the part of FENCED in which queued writes and dead letters still
    finish (PL-631)."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"
    RETIRING = "RETIRING"
    FENCED = "FENCED"


class DropReason(StrEnum):
    """The reason why an object is dropped (PL-604, PL-631). Records that were only acquired are forgotten with it, and
    so are their delivery counts."""

    INITIALIZE_FAILED = "initialize_failed"  # PL-604: it never was in use
    OUTCOME_UNKNOWN = "outcome_unknown"  # PL-707: neither a write nor the read-back after it was answered
    STATE_REPLACED = "state_replaced"  # PL-630, PL-634: the stored state was reset or deleted
    LEADERSHIP_LOST = "leadership_lost"  # PL-632: another leader took over, or the partition was deleted
    ILLEGAL_TRANSITION = "illegal_transition"  # PL-102: a record was in a state that a trigger must not meet
    RELEASED = "released"  # PL-523, CM-4: the group's last session ended here, or the partition is handed over


class DelayCause(StrEnum):
    """The reason why records wait (PL-938)."""

    RELEASED = "released"
    LOCK_EXPIRED = "lock_expired"


class PartitionMetrics(NamedTuple):
    """The values of a share-partition's metrics: offsets in flight, finished records and gaps between them included
    (PL-130); cached batches; offsets whose lock has run out since the object was made (PL-303); records whose delivery
    was taken back since then, and those for which that was refused (PL-941)."""

    in_flight: int
    batch_count: int
    locks_expired: int
    taken_back: int
    not_taken_back: int


class Delays(NamedTuple):
    """Records that wait for the end of a delay. `counts`: the start offset has not passed all that ever waited
    (PL-935). `records`: how many wait now. `pieces`: how many batches the window has. `ever`: how many ever waited, by
    cause (PL-938); it goes on counting."""

    counts: bool
    records: int
    pieces: int
    ever: Mapping[DelayCause, int]


@dataclass(frozen=True, slots=True)
class Overview:
    """One moment of a share-partition. `records` lists its cached records from the start offset on as state batches,
    Acquired ones included; a record whose transition is being written shows the state that it is changing to."""

    status: Status
    state_epoch: int
    generation: int
    start_offset: int
    end_offset: int
    delivery_complete_count: int
    in_flight: int
    batch_count: int
    gap_window: tuple[int, int] | None
    fetch_lock: int | None
    write_outstanding: bool
    operations_waiting: int
    unwritten_ranges: int
    locks_expired: int
    records: tuple[StateBatch, ...]
