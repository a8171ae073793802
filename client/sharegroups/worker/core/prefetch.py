"""Decides how many records a worker requests: as many as its handlers can finish in a short time at their slowest
recent pace.

Rule CL-124. That is one per idle handler while jobs are slow, and hundreds while they are fast; other members can get
the rest. Pure: times are passed in, in seconds.
"""

from __future__ import annotations

from collections import deque
from heapq import nlargest
from typing import Final

#: Waiting records should be started within this time, or within this part of their lock if that is shorter.
AHEAD_S: Final = 0.1
_OF_LOCK: Final = 10
#: The pace is the average of the slowest tenth of this many recent jobs. Even if only one job in ten is slow, all
#: waiting records are held up as soon as every handler has a slow job.
_MEMORY: Final = 100
_SLOWEST: Final = 10
#: The approximate cost of a job apart from its handler; a shorter job is counted as this long.
_JOB_COST_MIN_S: Final = 0.000_03


class Prefetch:
    """Computes request sizes. `handlers`: how many jobs run at once. `most`: the maximum number of records that may
    wait besides those."""

    def __init__(self, handlers: int, most: int) -> None:
        self._handlers = handlers
        self._most = most
        self._last: deque[float] = deque(maxlen=_MEMORY)
        self._pace_s: float | None = None
        self._finished = 0

    def finished(self, seconds: float) -> None:
        """Note how long a job took."""
        self._last.append(seconds)
        self._pace_s = None
        self._finished += 1

    def stalled(self) -> None:
        """Forget the pace of earlier jobs, because records had to wait too long."""
        self._last.clear()
        self._pace_s, self._finished = None, 0

    def capacity(self, lock_s: float) -> int:
        """Return how many records the worker should hold, including those whose jobs are running."""
        if not self._last:
            return self._handlers
        if self._pace_s is None:
            slowest = nlargest(-(-len(self._last) // _SLOWEST), self._last)
            self._pace_s = max(_JOB_COST_MIN_S, sum(slowest) / len(slowest))
        ahead_s = min(AHEAD_S, lock_s / _OF_LOCK)
        ahead = int(self._handlers * ahead_s / self._pace_s)
        return self._handlers + min(self._most, ahead, self._finished)

    def wanted(self, in_hand: int, lock_s: float) -> int:
        """Return how many records to request now; 0 while the worker holds enough, so that requests are not tiny."""
        capacity = self.capacity(lock_s)
        room = capacity - in_hand
        if room <= 0 or (in_hand >= self._handlers and room * 4 < capacity):
            return 0
        return room
