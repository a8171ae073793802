"""Offsets of a log that are known to hold no record: what markers left out, and what cannot be read (CM-47, CM-102).

A lag leaves them out. What is not known here counts as records, so that no work is ever hidden.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

HOLES_MAX: Final = 64


class Holes:
    """Stretches [start, end), apart from each other and ascending; beyond HOLES_MAX the smallest is forgotten."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """No record lies in [start, end); does nothing when that is empty."""
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
        """How many offsets of [start, end) are known to hold no record."""
        return sum(max(0, min(last, end) - max(first, start)) for first, last in self._stretches)
