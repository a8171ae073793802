"""How many records a worker asks for: those that its handlers finish within a short time, at their slowest pace.

Rule CL-124. One for each idle handler while jobs are slow, hundreds while they are quick; what is not here, other
members can have. Pure: times are passed in, in seconds.
"""

from __future__ import annotations

from collections import deque
from heapq import nlargest
from typing import Final

#: Records that wait in a worker should be begun within this time, or this part of their lock if that is less.
AHEAD_S: Final = 0.1
_OF_LOCK: Final = 10
#: So many of the last jobs are regarded: the slowest tenth of them is averaged. One slow job in ten holds up all that
#: waits for a handler as soon as each handler has met one.
_MEMORY: Final = 100
_SLOWEST: Final = 10
#: What a job costs beside its handler, about; a shorter one is counted as this.
_LEAST_S: Final = 0.000_03


class Prefetch:
    """`handlers`: how many jobs run at once. `most`: how many records may wait beside those at most."""

    def __init__(self, handlers: int, most: int) -> None:
        self._handlers = handlers
        self._most = most
        self._last: deque[float] = deque(maxlen=_MEMORY)
        self._pace_s: float | None = None
        self._finished = 0

    def finished(self, seconds: float) -> None:
        """A job took so long."""
        self._last.append(seconds)
        self._pace_s = None
        self._finished += 1

    def stalled(self) -> None:
        """Records had to wait for too long: forget the pace of the jobs before."""
        self._last.clear()
        self._pace_s, self._finished = None, 0

    def capacity(self, lock_s: float) -> int:
        """How many records the worker should have in its hands, those being worked on included."""
        if not self._last:
            return self._handlers
        if self._pace_s is None:
            slowest = nlargest(-(-len(self._last) // _SLOWEST), self._last)
            self._pace_s = max(_LEAST_S, sum(slowest) / len(slowest))
        ahead_s = min(AHEAD_S, lock_s / _OF_LOCK)
        ahead = int(self._handlers * ahead_s / self._pace_s)
        return self._handlers + min(self._most, ahead, self._finished)

    def wanted(self, in_hand: int, lock_s: float) -> int:
        """How many records to ask for now: none while enough are in hand, so that a request brings more than a few."""
        capacity = self.capacity(lock_s)
        room = capacity - in_hand
        if room <= 0 or (in_hand >= self._handlers and room * 4 < capacity):
            return 0
        return room
