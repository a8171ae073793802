"""How many records to ask for, so that the application holds them for a small part of the time they are locked (CL-85).

It begins with one record, doubles while the application is quick, and follows the slowest of the last polls, since jobs
differ. Pure: times are passed in, in ms.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: What one poll returns should be worked through in about this time, or in an eighth of the lock where that is less.
HOLD_MS: Final = 2_000
_OF_LOCK: Final = 8
#: Who works through so many in that time may be given whole batches of the producers, which hold up to 1,000 records
#: by default: the leader then has less to do for each record.
WHOLE: Final = 1_000
#: max.poll.records below this is meant.
_MANY: Final = 500
#: Polls that are remembered.
_MEMORY: Final = 50


class Pace:
    """`limit`: how many records the next fetch may ask for, 1 to `most`. Not `paced`, it is always `most`.

    `whole`: whether that may be exceeded by whole batches, and be asked of several leaders at once.
    """

    __slots__ = ("_most", "_paced", "_slowest", "limit", "whole")

    def __init__(self, most: int, paced: bool) -> None:
        self._most = most
        self._paced = paced
        self._slowest: deque[float] = deque(maxlen=_MEMORY)
        self.limit = 1 if paced else most
        self.whole = False

    def held(self, records: int, held_ms: int, lock_ms: int) -> None:
        """The application has held so many records for so long; `lock_ms` is their lock, 0 while it is unknown."""
        if not self._paced or records <= 0:
            return
        self._slowest.append(held_ms / records)
        hold_ms = min(HOLD_MS, lock_ms / _OF_LOCK) if lock_ms else HOLD_MS
        slowest = max(self._slowest)
        fits = int(hold_ms / slowest) if slowest > 0 else WHOLE
        self.whole = self.limit == self._most >= _MANY and fits >= WHOLE
        self.limit = max(1, min(self._most, fits, self.limit * 2))
