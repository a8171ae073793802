"""What is written and told of a share-partition's state, the same at its leader, persister and coordinator.

Values without behaviour. How batches combine is in `state_batches`.
"""

from __future__ import annotations

from typing import NamedTuple

from kip932.state_batches import NO_STATS, StateBatch, WriteStats


class StateWrite(NamedTuple):
    """One write of one share-partition, by its leader (PL-702). `batches` are the changed ranges, in any order.

    −1 skips the check of an epoch, and means unchanged for `start_offset`.
    """

    state_epoch: int
    leader_epoch: int
    generation: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    stats: WriteStats = NO_STATS


class StateSummary(NamedTuple):
    """Start offset, epochs and counts of a share-partition; these are the values of one without state (SC-50)."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = -1
    delivery_complete_count: int = -1
    archived_by_limit: int = -1
    archived_by_reject: int = -1
