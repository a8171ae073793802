"""Finds lost offsets in a part of the log: they had records, but their entry is damaged or missing.

Entries are noted in stream order. Offsets that a marker skipped on purpose (CM-47) are not lost.
"""

from __future__ import annotations


class Coverage:
    """A walk over a log's entries from `start` on. `lost`: ranges (first, last) that no entry accounts for."""

    __slots__ = ("lost", "next")

    def __init__(self, start: int) -> None:
        self.next = start
        self.lost: list[tuple[int, int]] = []

    def holds(self, start: int, end: int) -> None:
        """Note that an entry accounts for the offsets `start`…`end` − 1; those between the previous entry and it are
        lost."""
        if start > self.next:
            self.lost.append((self.next, start - 1))
        self.next = max(self.next, end)

    def above(self, log_start: int) -> list[tuple[int, int]]:
        """Return the lost ranges at or above `log_start`; entries below it may have been trimmed during the walk."""
        return [(max(first, log_start), last) for first, last in self.lost if last >= log_start]
