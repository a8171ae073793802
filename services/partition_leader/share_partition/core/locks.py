"""Acquisition locks: one heap of (deadline, first, last), an entry per acquired range (P-13, PL-302).

Owns the times at which ranges are due. Never changes a record: an entry is only a hint, and a record's own deadline
decides whether it is due. So the entries of copied, renewed and cancelled timers stay in the heap and do nothing
(PL-303).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from partition_leader.share_partition.core.limits import LIMITS

LockEntry = tuple[int, int, int]


class LockHeap:
    """Ranges by lock end. Stale entries are removed when they reach the top, or when they outnumber the live ones."""

    __slots__ = ("_entries", "_sweep_at", "_sweep_at_least")

    def __init__(self, sweep_at: int = LIMITS.lock_entries) -> None:
        self._entries: list[LockEntry] = []
        self._sweep_at = self._sweep_at_least = sweep_at

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, deadline: int, first: int, last: int, is_live: Callable[[LockEntry], bool]) -> None:
        """Note that the lock of `first`…`last` ends at `deadline` (ms)."""
        heapq.heappush(self._entries, (deadline, first, last))
        if len(self._entries) >= self._sweep_at:
            self._entries = [entry for entry in self._entries if is_live(entry)]
            heapq.heapify(self._entries)
            self._sweep_at = max(self._sweep_at_least, 2 * len(self._entries))

    def entries(self) -> list[LockEntry]:
        """All entries, including stale ones, in no particular order."""
        return list(self._entries)

    def is_due(self, now_ms: int) -> bool:
        """Return whether `due` would find anything."""
        return bool(self._entries) and self._entries[0][0] <= now_ms

    def due(self, now_ms: int) -> list[LockEntry]:
        """Remove and return every entry whose deadline has come."""
        entries = self._entries
        result: list[LockEntry] = []
        while entries and entries[0][0] <= now_ms:
            result.append(heapq.heappop(entries))
        return result

    def next_deadline(self, first_live: Callable[[LockEntry], int | None]) -> int | None:
        """Return the earliest deadline that still matters; None if nothing is locked. `first_live` returns the first
        offset of an entry that still has this exact lock end. Locks below that offset have ended for good (a new lock
        has its own entry), so the entry is narrowed, and no offset is checked twice."""
        entries = self._entries
        while entries:
            deadline, first, last = entries[0]
            live = first_live(entries[0])
            if live is None:
                heapq.heappop(entries)
                continue
            if live > first:
                heapq.heapreplace(entries, (deadline, live, last))
            return deadline
        return None

    def clear(self) -> None:
        """Cancel everything (PL-631)."""
        self._entries.clear()
