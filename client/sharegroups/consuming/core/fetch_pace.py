"""Decides how many records to fetch, so that the application finishes them long before their locks expire (CL-85).

The limit starts at one record and doubles while the application is quick. Since jobs differ in length, the slowest
recent poll decides. Pure: times are passed in, in ms.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: The target for how long the application needs for one poll's records, in ms; an eighth of the lock if that is less.
HOLD_MS: Final = 2_000
_OF_LOCK: Final = 8
#: An application that processes this many records in that time may get whole batches as produced, which have up to
#: 1,000 records by default. This costs the leader less work per record.
WHOLE: Final = 1_000
#: A max.poll.records below this is taken as a limit that the user wants, so whole batches do not exceed it.
_MANY: Final = 500
#: The number of recent polls that are remembered.
_MEMORY: Final = 50


class Pace:
    """Adjusts `limit`, the number of records that the next fetch may request: from 1 to `most`; always `most` if not
    `paced`.

    `whole`: whole batches may exceed the limit, and several leaders may be asked in parallel.
    """

    __slots__ = ("_most", "_paced", "_slowest", "limit", "whole")

    def __init__(self, most: int, paced: bool) -> None:
        self._most = most
        self._paced = paced
        self._slowest: deque[float] = deque(maxlen=_MEMORY)
        self.limit = 1 if paced else most
        self.whole = False

    def held(self, records: int, held_ms: int, lock_ms: int) -> None:
        """Note that the application held `records` for `held_ms`. `lock_ms`: their lock's duration; 0 while it is
        unknown."""
        if not self._paced or records <= 0:
            return
        self._slowest.append(held_ms / records)
        hold_ms = min(HOLD_MS, lock_ms / _OF_LOCK) if lock_ms else HOLD_MS
        slowest = max(self._slowest)
        fits = int(hold_ms / slowest) if slowest > 0 else WHOLE
        self.whole = self.limit == self._most >= _MANY and fits >= WHOLE
        self.limit = max(1, min(self._most, fits, self.limit * 2))
