"""One heap of deadlines for the whole process, with a single timer (P-13).

A holder has one current deadline. Setting another replaces it; the replaced entry is dropped when it reaches the top of
the heap. Idle holders cost nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import structlog

from kip932.armed_timer import ArmedTimer
from shard_runtime.clock import Clock

log = structlog.get_logger(__name__)

#: The maximum number of holders that are called back before the event loop gets a turn.
_BATCH: Final = 256


class Deadlines:
    """Calls holders back at their deadlines, on the running event loop. All times are in ms on the given clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Callable[[int], None]]] = []
        self._current: dict[Callable[[int], None], int] = {}
        self._sequence = 0
        self._timer = ArmedTimer(self._fire)

    def set(self, holder: Callable[[int], None], deadline_ms: int | None) -> None:
        """Call `holder(now_ms)` once at `deadline_ms`, which replaces its former deadline; None cancels the call."""
        if deadline_ms is None:
            self._current.pop(holder, None)
            return
        if self._current.get(holder) == deadline_ms:
            return
        self._current[holder] = deadline_ms
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, holder))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._current):
            self._rebuild()
        self._arm()

    def __len__(self) -> int:
        """How many holders have a deadline."""
        return len(self._current)

    def close(self) -> None:
        """Forget all deadlines and cancel the timer."""
        self._heap.clear()
        self._current.clear()
        self._timer.cancel()

    def _rebuild(self) -> None:
        """Drop the replaced entries. Called when they are most of the heap, so that the heap's size is bounded by the
        number of holders."""
        self._heap = [(deadline, i, holder) for i, (holder, deadline) in enumerate(self._current.items())]
        self._sequence = len(self._heap)
        heapq.heapify(self._heap)

    def _arm(self) -> None:
        if self._heap and (first := self._heap[0][0]) < self._timer.at:
            self._timer.arm(first, (first - self._clock.now_ms()) / 1000)

    def _fire(self) -> None:
        now_ms = self._clock.now_ms()
        for _ in range(_BATCH):
            if not self._heap or self._heap[0][0] > now_ms:
                break
            deadline, _, holder = heapq.heappop(self._heap)
            if self._current.get(holder) == deadline:
                del self._current[holder]
                try:
                    holder(now_ms)
                except Exception:  # one holder's failure must not keep the others from being called
                    log.exception("deadline_work_failed")
        self._arm()
