"""The life cycle of a share-partition object (PL-601), and the snapshot that tools, metrics and failing tests print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from kip932.state_batches import StateBatch


class Status(Enum):
    """The status of a share-partition object (PL-601). RETIRING is the part of FENCED in which queued writes and dead
    letters are still finished (PL-631)."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"
    RETIRING = "RETIRING"
    FENCED = "FENCED"


class DropReason(StrEnum):
    """The reason why an object is dropped (PL-604, PL-631). Records that were only acquired are forgotten with it,
    including their delivery counts."""

    INITIALIZE_FAILED = "initialize_failed"  # PL-604: it never was in use
    OUTCOME_UNKNOWN = "outcome_unknown"  # PL-707: neither a write nor the read-back after it was answered
    STATE_REPLACED = "state_replaced"  # PL-630, PL-634: the stored state was reset or deleted
    LEADERSHIP_LOST = "leadership_lost"  # PL-632: another leader took over, or the partition was deleted
    ILLEGAL_TRANSITION = "illegal_transition"  # PL-102: a record was in a state that a trigger must not encounter
    RELEASED = "released"  # PL-523, CM-4: the group's last session ended here, or the partition is handed over


class DelayCause(StrEnum):
    """The reason why records are delayed (PL-938)."""

    RELEASED = "released"
    LOCK_EXPIRED = "lock_expired"


class PartitionMetrics(NamedTuple):
    """The values of a share-partition's metrics: offsets in flight, including finished records and gaps between them
    (PL-130); cached batches; offsets whose lock has expired since the object was created (PL-303); records whose
    delivery was taken back since then, and those for which that was refused (PL-941)."""

    in_flight: int
    batch_count: int
    locks_expired: int
    taken_back: int
    not_taken_back: int


class Delays(NamedTuple):
    """Delayed records. `counts`: whether the start offset has yet to pass some record that was ever delayed (PL-935).
    `records`: how many are delayed now. `pieces`: how many batches the window has. `ever`: how many were ever delayed,
    by cause (PL-938); this mapping is live."""

    counts: bool
    records: int
    pieces: int
    ever: Mapping[DelayCause, int]


@dataclass(frozen=True, slots=True)
class Overview:
    """A snapshot of a share-partition. `records` lists its cached records from the start offset on as state batches,
    including Acquired ones; a record whose transition is being written has the state that it is changing to."""

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
