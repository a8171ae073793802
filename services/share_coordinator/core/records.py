"""The records of the share-state log, as values (share-coordinator.md section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kip932.failures import Failure
from kip932.ids import SharePartitionKey
from kip932.state_batches import NO_STATS, StateBatch, WriteStats

NO_LEADER_EPOCH = -1
UNKNOWN_COUNT = -1


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """Type S: the whole state of one share-partition; it replaces all earlier records.

    `leader_epoch` is 0 after Initialize, while the `fence_…` fields keep the largest epochs ever seen, so that fencing
    survives fail-over and trimming (SC-34). The two timestamps differ in cold copies and only there (SC-60).
    """

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    generation: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    write_ms: int
    batches: tuple[StateBatch, ...]
    fence_leader_epoch: int
    fence_generation: int
    fence_state_epoch: int
    stats: WriteStats = NO_STATS
    archived_by_limit: int = 0
    archived_by_reject: int = 0
    failures: tuple[Failure, ...] = ()


class ShareUpdate(NamedTuple):
    """Type U: a change since the snapshot `snapshot_epoch`. `start_offset` −1 and `leader_epoch` −1: unchanged.

    Unlike the `WriteState` it comes from, it has the state's epochs, and combined batches and reasons of failures
    (SC-40, SC-100, SC-117).
    """

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    generation: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    stats: WriteStats = NO_STATS
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareTombstone:
    """Type T: the state of the share-partition was deleted (SC-46, SC-57)."""

    key: SharePartitionKey


ShareRecord = ShareSnapshot | ShareUpdate | ShareTombstone
