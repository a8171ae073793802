"""Handles a log start that passes the share-partition's start offset: retention or delete-records (PL-620, PL-622,
T16)."""

from __future__ import annotations

from partition_leader.share.core.batch import NOBODY
from partition_leader.share.core.in_flight import Window
from partition_leader.share.core.transitions import LOG_START_MOVED


def move_log_start(window: Window, log_start_offset: int) -> bool:
    """Raise the start offset to the log's; return whether anything changed. A lower or equal one changes nothing
    (12.10). Acquired records below it stay with their holder until acknowledged, released or expired (PL-622)."""
    if log_start_offset <= window.start_offset:
        return False
    if not window.is_empty:
        gap = window.open_gap
        for batch in window.overlapping(window.start_offset, log_start_offset - 1):
            high = min(batch.last, log_start_offset - 1)
            for first, last, code, _ in list(batch.runs(batch.first, high)):
                if LOG_START_MOVED[code] != code:
                    window.recode(batch, first, last, LOG_START_MOVED)
                    batch.hold(first, last, NOBODY, 0)
        window.move_start(log_start_offset)
        window.gap = None
        if gap is not None and not window.is_empty:
            window.note_gap(max(gap[0], log_start_offset), gap[1])
    else:
        window.move_start(log_start_offset)
    return True
