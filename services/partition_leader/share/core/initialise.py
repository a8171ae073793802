"""Loads a share-partition from the share coordinator's stored state (PL-604 … PL-608, PL-611)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kip932.errors import UnknownServerError
from kip932.ids import BATCH_RECORDS_MAX, STATE_ACQUIRED, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share.core.batch import InFlightBatch
from partition_leader.share.core.in_flight import Window
from partition_leader.share.core.limits import LIMITS, Limits
from partition_leader.share.core.transitions import DELAYED, KNOWN_STATES

#: Offsets in flight that a stored state may span. Before CM-112, batches with a false length left spans of up to 2^31.
_SPAN_MAX: Final = 2**32


def load(start_offset: int, batches: Iterable[StateBatch], now_ms: int = 0, limits: Limits = LIMITS) -> Window:
    """Return a window with every stored batch, held by no member. Those longer than a record batch may be are split, so
    that no array is longer than that (CM-112). Their `not_before_ms` are on the clock of `now_ms` (PL-934). Raises
    UnknownServerError for a reply that breaks PL-604: a batch below the start offset, too far after it, backwards,
    overlapping another, or in an unknown state."""
    window = Window(start_offset, limits)
    following = start_offset
    hole: int | None = None
    for batch in sorted(batches):
        first, last, state, count, until = batch
        if first < start_offset or last < first or state not in KNOWN_STATES or first < following:
            raise UnknownServerError(
                f"stored state batch {first}-{last} (state {state}, count {count}) cannot be loaded: expected a known "
                f"state and offsets from {following} on, start offset {start_offset}; read the share-partition's "
                "state again, and look at its entries if this stays"
            )
        if last - start_offset > _SPAN_MAX:
            raise UnknownServerError(
                f"stored state batch {first}-{last} ends {last - start_offset} offsets behind the start offset "
                f"{start_offset}; at most {_SPAN_MAX} can be in flight: look at the share-partition's entries"
            )
        if first > following and hole is None:
            hole = following
        code = STATE_AVAILABLE if state == STATE_ACQUIRED else state  # PL-101
        for low in range(first, last + 1, BATCH_RECORDS_MAX):
            high = min(low + BATCH_RECORDS_MAX - 1, last)
            if code == STATE_AVAILABLE and until > now_ms:
                window.add(InFlightBatch(low, high, DELAYED, count, deadline=until))
                window.lock(low, high, until)
            else:
                window.add(InFlightBatch(low, high, code, count))
        if until:
            window.note_delayed(last)
        following = last + 1
    if not window.is_empty:
        window.end_offset = window.last_offset
        if hole is not None:
            window.gap = (hole, window.end_offset)
    return window
