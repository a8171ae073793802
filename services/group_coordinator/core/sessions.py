"""Session time-outs of all members of a shard, in one heap with lazy cancellation (GC-24h, GC-32, P-13).

Soft state: nothing here is persisted, and every clock restarts in full when a shard is loaded (GC-69c) or could not
work for a while (GC-32a). Restarting a clock, the usual case, only changes its deadline; its heap entry moves when it
becomes the earliest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

MemberKey = tuple[str, str]
_RETRY_MS: Final = 1_000


@dataclass(slots=True)
class _Clock:
    """One member's clock: its deadline, and the time of its heap entry.

    The heap entry is earlier than the deadline after a restart, and later when the clock ran out and was just reported.
    """

    deadline_ms: int
    queued_ms: int


class Sessions:
    """Deadlines by (group id, member id)."""

    __slots__ = ("_clocks", "_heap")

    def __init__(self) -> None:
        self._clocks: dict[MemberKey, _Clock] = {}
        self._heap: list[tuple[int, MemberKey]] = []

    def __len__(self) -> int:
        return len(self._clocks)

    def restart(self, key: MemberKey, deadline_ms: int) -> None:
        """(Re)start a member's clock."""
        clock = self._clocks.get(key)
        if clock is None:
            self._clocks[key] = _Clock(deadline_ms, deadline_ms)
        elif clock.queued_ms <= deadline_ms:
            clock.deadline_ms = deadline_ms
            return
        else:
            clock.deadline_ms = clock.queued_ms = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: MemberKey) -> int | None:
        """Stop a member's clock. Returns its deadline, for `restart` on undo, or None when it had no clock."""
        clock = self._clocks.pop(key, None)
        if not self._clocks:
            self._heap.clear()
        return None if clock is None else clock.deadline_ms

    def deadline(self, key: MemberKey) -> int | None:
        """Return when the member's clock runs out, or None when it has none."""
        clock = self._clocks.get(key)
        return None if clock is None else clock.deadline_ms

    def expired(self, key: MemberKey, now_ms: int) -> bool:
        """Return whether the member's clock has run out. A member without a clock is not expired."""
        clock = self._clocks.get(key)
        return clock is not None and clock.deadline_ms <= now_ms

    def next_deadline(self) -> int | None:
        """Return exactly when the next clock runs out; heap entries of restarted clocks move to their new deadlines
        here."""
        heap = self._heap
        while heap:
            queued_ms, key = heap[0]
            clock = self._clocks.get(key)
            if clock is None or clock.queued_ms != queued_ms:
                heapq.heappop(heap)
            elif clock.deadline_ms > queued_ms:
                clock.queued_ms = clock.deadline_ms
                heapq.heapreplace(heap, (clock.deadline_ms, key))
            else:
                return queued_ms
        return None

    def due(self, now_ms: int, limit: int) -> list[MemberKey]:
        """Return at most `limit` members whose clocks have run out; a member that is not removed is returned again a
        second later."""
        found: list[MemberKey] = []
        while len(found) < limit and (deadline_ms := self.next_deadline()) is not None and deadline_ms <= now_ms:
            key = self._heap[0][1]
            found.append(key)
            self._clocks[key].queued_ms = now_ms + _RETRY_MS
            heapq.heapreplace(self._heap, (now_ms + _RETRY_MS, key))
        return found

    def reset(self, keys: Iterable[MemberKey], deadline_of: Callable[[str], int]) -> None:
        """Forget all clocks and start one for each of `keys`; `deadline_of` is called once per group."""
        deadlines: dict[str, int] = {}
        self._clocks = {}
        for key in keys:
            if key[0] not in deadlines:
                deadlines[key[0]] = deadline_of(key[0])
            self._clocks[key] = _Clock(deadlines[key[0]], deadlines[key[0]])
        self._heap = [(clock.deadline_ms, key) for key, clock in self._clocks.items()]
        heapq.heapify(self._heap)
