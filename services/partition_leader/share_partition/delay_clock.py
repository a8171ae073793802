"""Converts the ends of delays between the leader's monotonic clock, which its core uses, and the wall clock, in which
they are stored (PL-934)."""

from __future__ import annotations

from collections.abc import Iterable

from kip932.state_batches import StateBatch
from shard_runtime.clock import Clock


def on_the_wall(batches: Iterable[StateBatch], clock: Clock) -> tuple[StateBatch, ...]:
    """Return the batches with the ends of their delays on the wall clock, in ms since 1970."""
    ahead_ms = clock.wall_ms() - clock.now_ms()
    return tuple(_moved(batch, batch.not_before_ms + ahead_ms) for batch in batches)


def on_the_leader(batches: Iterable[StateBatch], clock: Clock, delay_max_ms: int) -> tuple[StateBatch, ...]:
    """Return the batches with the ends of their delays on this process's own clock. None ends later than `delay_max_ms`
    from now, since another node's clock, or this one's, may have been wrong. A delay that is already over ends now."""
    now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
    return tuple(_moved(batch, now_ms + min(max(0, batch.not_before_ms - wall_ms), delay_max_ms)) for batch in batches)


def _moved(batch: StateBatch, end_ms: int) -> StateBatch:
    return batch._replace(not_before_ms=end_ms) if batch.not_before_ms else batch
