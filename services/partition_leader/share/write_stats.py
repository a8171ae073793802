"""The statistics that a leader puts into a write of share-partition state (PM-20). Pure."""

from __future__ import annotations

from kip932.state_batches import WriteStats
from partition_leader.share.core.effects import Persist


def write_stats(effect: Persist, high_watermark: int, delivery_count_limit: int) -> WriteStats:
    """Return what only the leader knows. The group's limit is in writes that release or archive records; other writes
    do not need it."""
    counters = effect.counters
    matters = effect.archived or counters.n_release or counters.n_timeout or counters.n_limit
    limit = delivery_count_limit if matters else None
    return WriteStats(effect.cause, *counters, high_watermark, effect.speo, effect.write_id, limit, effect.archived)
