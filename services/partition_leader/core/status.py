"""The life of a share-partition object (PL-601) and the picture of it that tools, metrics and failing tests print."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kip932.state_batches import StateBatch


class Status(Enum):
    """PL-601. RETIRING is the part of FENCED in which queued writes and dead letters still finish (PL-631)."""

    INITIALIZING = "INITIALIZING"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"
    RETIRING = "RETIRING"
    FENCED = "FENCED"


@dataclass(frozen=True, slots=True)
class Overview:
    """One moment of a share-partition. `records` lists its cached records from the start offset on as state batches,
    Acquired ones included; a record whose transition is being written shows the state it is going to."""

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
