"""The state of one share-partition, and how each record changes it (SC-51…SC-60, SC-117).

A state is immutable: each record produces a new value; to undo a record, restore the old value. This module owns the
merging rules of start offset and delivery-complete count (SC-41, SC-42); it never decides whether a request is allowed.
"""

from __future__ import annotations

from typing import NamedTuple

from kip932.failures import Failure, merge_failures
from kip932.ids import SharePartitionKey
from kip932.state_batches import NO_STATS, UNSET_OFFSET, StateBatch, WriteStats, combine, merge_count, merge_into
from share_coordinator.core.records import NO_LEADER_EPOCH, UNKNOWN_COUNT, ShareSnapshot, ShareUpdate

#: Makes a ShareState of a tuple of its fields in order, fast: each write and each replayed update makes one.
_new = tuple.__new__


class ShareState(NamedTuple):
    """The stored state of one share-partition.

    `fence`: the largest (leader epoch, generation) ever seen; `fence_state_epoch`: the largest state epoch. They never
    decrease while the state exists (SC-34). `updates`: the number of updates since the last snapshot, whatever its
    cause [SC-55 R]. `archived_by_…`: records archived without having been accepted, since the state was initialised
    (PL-811); each update carries its own number, each snapshot the sum. `failures`: why records from the start offset
    on were given up (SC-117).
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    generation: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    create_ms: int
    write_ms: int
    fence: tuple[int, int]
    fence_state_epoch: int
    updates: int
    archived_by_limit: int = 0
    archived_by_reject: int = 0
    failures: tuple[Failure, ...] = ()

    @property
    def cold_copied(self) -> bool:
        """Whether nothing has changed since a cold copy, so that another would be useless (SC-74, SC-75)."""
        return self.updates == 0 and self.create_ms != self.write_ms

    def snapshot(self, key: SharePartitionKey, wall_ms: int, stats: WriteStats = NO_STATS) -> ShareSnapshot:
        """Return this state as the next snapshot, written because of the number of updates (SC-52)."""
        return self._copy(key, wall_ms, wall_ms, stats)

    def cold_copy(self, key: SharePartitionKey, wall_ms: int, stats: WriteStats) -> ShareSnapshot:
        """Return a copy that makes older records redundant; only write time and snapshot epoch are new (SC-73)."""
        return self._copy(key, self.create_ms, wall_ms, stats)

    def _copy(self, key: SharePartitionKey, create_ms: int, write_ms: int, stats: WriteStats) -> ShareSnapshot:
        return ShareSnapshot(
            key=key,
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            generation=self.generation,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_ms=create_ms,
            write_ms=write_ms,
            batches=self.batches,
            fence_leader_epoch=self.fence[0],
            fence_generation=self.fence[1],
            fence_state_epoch=self.fence_state_epoch,
            stats=stats,
            archived_by_limit=self.archived_by_limit,
            archived_by_reject=self.archived_by_reject,
            failures=self.failures,
        )


def after_snapshot(record: ShareSnapshot) -> ShareState:
    """Return the state after replaying `record`, whatever it was before: a snapshot is whole, fences included (SC-55).

    The previous fence could refuse callers that the snapshot admits: it is from an earlier life of the key, whose
    tombstone was damaged or skipped.
    """
    return ShareState(
        snapshot_epoch=record.snapshot_epoch,
        state_epoch=record.state_epoch,
        leader_epoch=record.leader_epoch,
        generation=record.generation,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        batches=record.batches,
        create_ms=record.create_ms,
        write_ms=record.write_ms,
        fence=max((record.leader_epoch, record.generation), (record.fence_leader_epoch, record.fence_generation)),
        fence_state_epoch=max(record.state_epoch, record.fence_state_epoch),
        updates=0,
        archived_by_limit=record.archived_by_limit,
        archived_by_reject=record.archived_by_reject,
        failures=record.failures,
    )


def after_update(state: ShareState | None, record: ShareUpdate) -> ShareState:
    """Return the state after replaying `record` (SC-56). Without an earlier state, the result is the record's own, with
    state epoch 0."""
    if state is None:
        return _orphan(record)
    (
        snapshot_epoch, state_epoch, leader_epoch, generation, start_offset, count, batches, create_ms, write_ms,
        fence, fence_state_epoch, updates, by_limit, by_reject, failures,
    ) = state  # fmt: skip
    _, _, new_leader, new_generation, new_start, new_count, new_batches, stats, new_failures = record
    if new_start >= start_offset:
        count = merge_count(start_offset, count, new_start, new_count)
        start_offset = new_start
    if new_leader != leader_epoch or new_generation != generation:  # else the fence is already as high
        fence = max(fence, (new_leader, new_generation))
        if new_leader != NO_LEADER_EPOCH:
            leader_epoch, generation = new_leader, new_generation
    if stats is not NO_STATS:
        by_limit += stats.n_limit or 0
        by_reject += stats.n_reject or 0
    if new_failures or (failures and failures[0].first_offset < start_offset):
        failures = merge_failures(failures, new_failures, start_offset)
    merged = tuple(merge_into(batches, new_batches, start_offset))
    return _new(
        ShareState,
        (
            snapshot_epoch, state_epoch, leader_epoch, generation, start_offset, count, merged, create_ms, write_ms,
            fence, fence_state_epoch, updates + 1, by_limit, by_reject, failures,
        ),
    )  # fmt: skip


def _orphan(record: ShareUpdate) -> ShareState:
    return ShareState(
        snapshot_epoch=record.snapshot_epoch,
        state_epoch=0,
        leader_epoch=record.leader_epoch,
        generation=record.generation,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        batches=tuple(combine((), record.batches, record.start_offset)),
        create_ms=0,
        write_ms=0,
        fence=(record.leader_epoch, record.generation),
        fence_state_epoch=NO_LEADER_EPOCH,
        updates=1,
        archived_by_limit=(record.stats.n_limit or 0),
        archived_by_reject=(record.stats.n_reject or 0),
        failures=merge_failures((), record.failures, record.start_offset),
    )


def initial_snapshot(
    key: SharePartitionKey,
    state: ShareState | None,
    state_epoch: int,
    start_offset: int,
    *,
    wall_ms: int,
    stats: WriteStats,
) -> ShareSnapshot:
    """Return the record of Initialize: a new state that replaces the old one but keeps its fences (SC-32, SC-34)."""
    return ShareSnapshot(
        key=key,
        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        generation=0,
        start_offset=start_offset,
        delivery_complete_count=UNKNOWN_COUNT if start_offset == UNSET_OFFSET else 0,
        create_ms=wall_ms,
        write_ms=wall_ms,
        batches=(),
        fence_leader_epoch=0 if state is None else max(0, state.fence[0]),
        fence_generation=0 if state is None or state.fence[0] < 0 else state.fence[1],
        fence_state_epoch=state_epoch if state is None else max(state_epoch, state.fence_state_epoch),
        stats=stats,
    )
