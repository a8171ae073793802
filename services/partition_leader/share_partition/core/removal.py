"""Removes offsets that the log does not have: compaction, aborted transactions, lost tails (T17, T18, CM-47).

Owns the way in which such records leave the window without an acknowledgement. Never decides that the log lacks them:
its callers learn that from a log read.
"""

from __future__ import annotations

from partition_leader.share_partition.core.advance import advance
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.transitions import COMPACTED, TransitionTable


def take_away(window: Window, batch: InFlightBatch, span: Span, table: TransitionTable) -> list[Span]:
    """Map the batch's records in `span` through `table`, which archives or keeps them; return the spans that
    changed."""
    changed: list[Span] = []
    for first, last, code, _ in list(batch.runs(*span)):
        if table[code] != code:
            window.recode(batch, first, last, table)
            batch.hold(first, last, NO_MEMBER, 0)
            changed.append((first, last))
    return changed


def remove_unheld(window: Window, first: int, last: int) -> list[Span]:
    """Archive the records of `first`…`last` that the log skipped and no member holds: Available and delayed ones, and
    pending releases (T17, PL-226). Returns the spans that changed."""
    changed: list[Span] = []
    for batch in window.overlapping(first, last):
        if batch.available or batch.pending or batch.delayed:
            changed += take_away(window, batch, (max(first, batch.first), min(last, batch.last)), COMPACTED)
    return changed


def skip_hole(window: Window, first: int, end: int) -> list[Span]:
    """Skip a hole in the log at once, from `first`, the next offset to fetch, up to but not including `end` (CM-47).
    Returns the archived spans. Acquired records in it keep their holder until they are acknowledged or their lock
    expires."""
    archived = remove_unheld(window, first, end - 1)
    gap = window.open_gap
    if gap is not None and first <= gap[0] < end:
        window.note_gap(end, gap[1])
    advance(window)
    if window.is_empty and first <= window.next_offset < end:
        window.move_start(end)
    return archived
