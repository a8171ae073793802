"""Offsets known to have no record: those that markers skipped, and those that cannot be read (CM-47, CM-102).

They are not part of a lag. Any other offset is counted as a record, so that a lag never hides work.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

HOLES_MAX: Final = 64


class Holes:
    """Ranges [start, end), disjoint and ascending; above HOLES_MAX the smallest is forgotten."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """Note that [start, end) has no record; an empty range changes nothing."""
        if start >= end:
            return
        apart = []
        for first, last in self._stretches:
            if last < start or end < first:
                apart.append((first, last))
            else:
                start, end = min(start, first), max(end, last)
        apart.insert(bisect_left(apart, (start, end)), (start, end))
        if len(apart) > HOLES_MAX:
            apart.remove(min(apart, key=lambda stretch: stretch[1] - stretch[0]))
        self._stretches = apart

    def count(self, start: int, end: int) -> int:
        """Return how many offsets of [start, end) are known to have no record."""
        return sum(max(0, min(last, end) - max(first, start)) for first, last in self._stretches)
