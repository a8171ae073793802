"""Which offsets of a stretch of the log nobody can read, though records had them: their entry is damaged or missing.

Entries are noted in the order of the stream. What a marker left out on purpose (CM-47) is no loss.
"""

from __future__ import annotations


class Coverage:
    """A walk over the entries of a log from `start` on. `lost`: stretches (first, last) that no entry accounts for."""

    __slots__ = ("lost", "next")

    def __init__(self, start: int) -> None:
        self.next = start
        self.lost: list[tuple[int, int]] = []

    def holds(self, start: int, end: int) -> None:
        """An entry accounts for the offsets `start`…`end` − 1; those between the entry before and it are lost."""
        if start > self.next:
            self.lost.append((self.next, start - 1))
        self.next = max(self.next, end)

    def above(self, log_start: int) -> list[tuple[int, int]]:
        """What is lost at or above `log_start`: what lies below may have been cut off during the walk."""
        return [(max(first, log_start), last) for first, last in self.lost if last >= log_start]
