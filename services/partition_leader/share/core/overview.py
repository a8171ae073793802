"""The snapshot of a share-partition that tools and failing tests print."""

from __future__ import annotations

from partition_leader.share.core.advance import committed
from partition_leader.share.core.partition_state import PartitionState
from partition_leader.share.core.pieces import records_of
from partition_leader.share.core.status import Overview


def overview_of(state: PartitionState, fetch_lock: int | None) -> Overview:
    """Return the whole state. The cost grows with the records in flight."""
    window, progress = state.window, committed(state.window)
    return Overview(
        state.status,
        state.state_epoch,
        state.generation,
        window.start_offset,
        window.end_offset,
        progress.delivery_complete_count,
        window.in_flight,
        window.batch_count,
        window.open_gap,
        fetch_lock,
        state.write_back.outstanding is not None,
        len(state.write_back.queued),
        len(state.write_back.dirty.spans),
        state.locks_expired,
        records_of(window.walk(), window.start_offset),
    )
