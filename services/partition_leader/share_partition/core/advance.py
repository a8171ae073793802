"""Moves the start offset, and computes where it will be once the outstanding changes commit (PL-120 … PL-125, PL-704).

Owns the walk from the front of the window. It stops at the first record that is not finished, so its cost is
proportional to the batches it passes (P-3).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.transitions import CLOSING_CODES, TERMINAL_CODES

_NOT_TERMINAL: Final = re.compile(b"[^" + re.escape(TERMINAL_CODES) + b"]")
_NOT_CLOSING: Final = re.compile(b"[^" + re.escape(CLOSING_CODES) + b"]")

# By code. The last entry, index −1, means "no record there": only the walk can decide that case.
_IS_TERMINAL: Final = [code in TERMINAL_CODES for code in range(255)] + [True]
_IS_CLOSING: Final = [code in CLOSING_CODES for code in range(255)] + [True]


class Progress(NamedTuple):
    """The start offset and delivery_complete_count in one view of the window."""

    start_offset: int
    delivery_complete_count: int


def advance(window: Window) -> bool:
    """Move the start offset over finished records (PL-121 … PL-124); return whether it moved. Idempotent."""
    if not _IS_TERMINAL[window.front_code]:  # nearly always: nothing is finished at the front
        return False
    start = _frontier(window, pending_commits=False)
    moved = start > window.start_offset
    if moved:
        window.move_start(start)
    return moved


def committed(window: Window) -> Progress:
    """Return the start offset in memory, and how many records from there on are finished, or will be once their write
    commits (PL-125)."""
    return Progress(window.start_offset, _closed_from(window, window.start_offset))


def prospective(window: Window) -> Progress:
    """Return the start offset and count that will hold if every pending transition commits (PL-704)."""
    start = _frontier(window, pending_commits=True) if _IS_CLOSING[window.front_code] else window.start_offset
    return Progress(start, _closed_from(window, start))


def _frontier(window: Window, pending_commits: bool) -> int:
    """Return the start offset of PL-121 … PL-123; with `pending_commits`, as if pending transitions had committed."""
    start = window.start_offset
    if window.is_empty:
        return start
    gap = window.open_gap
    passed = False
    for batch in window.walk():
        if gap is not None and batch.last >= gap[0]:
            return max(start, min(batch.first, gap[0])) if passed else start
        if batch.closing == len(batch) and (pending_commits or not batch.pending):
            passed = True
            continue
        at = max(batch.first, start)
        if batch.codes is not None:
            pattern = _NOT_CLOSING if pending_commits else _NOT_TERMINAL
            found = pattern.search(batch.codes, at - batch.first)
            if found is None:  # only records below the start offset are unfinished: they are ignored
                passed = True
                continue
            if batch.first + found.start() > at:
                return batch.first + found.start()
        return max(start, batch.first) if passed else start
    return window.last_offset + 1


def _closed_from(window: Window, start: int) -> int:
    """Count the offsets ≥ `start` that are terminal, or will be when the pending write commits."""
    closed = window.closing
    if start <= window.front_offset:
        return closed
    for batch in window.walk():
        if batch.last < start:
            closed -= batch.closing
            continue
        if batch.first < start:
            closed -= batch.closed_below(start)
        break
    return closed
