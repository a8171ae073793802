"""Loading a share-partition from what the share coordinator stores (PL-604 … PL-608, PL-611)."""

from __future__ import annotations

from collections.abc import Iterable

from kip932.errors import UnknownServerError
from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.core.batch import InFlightBatch
from partition_leader.core.in_flight import Window
from partition_leader.core.transitions import KNOWN_STATES


def load(start_offset: int, batches: Iterable[StateBatch]) -> Window:
    """A window with every stored batch whole, nobody holding it. Raises UnknownServerError for a reply that breaks
    PL-604: a batch below the start offset, backwards, overlapping another, or in an unknown state."""
    window = Window(start_offset)
    following = start_offset
    hole: int | None = None
    for batch in sorted(batches):
        first, last, state, count = batch
        if first < start_offset or last < first or state not in KNOWN_STATES or first < following:
            raise UnknownServerError(
                f"stored state batch {first}-{last} (state {state}, count {count}) cannot be loaded: expected a known "
                f"state and offsets from {following} on, start offset {start_offset}; read the share-partition's "
                "state again, and look at its entries if this stays"
            )
        if first > following and hole is None:
            hole = following
        window.add(InFlightBatch(first, last, STATE_AVAILABLE if state == STATE_ACQUIRED else state, count))  # PL-101
        following = last + 1
    if not window.is_empty:
        window.end_offset = window.last_offset
        if hole is not None:
            window.gap = (hole, window.end_offset)
    return window
