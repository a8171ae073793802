"""Decides how many records a consumer fetches ahead of the poll that returns them (CL-136, CL-138).

A request costs a leader about as much for 2,000 records as for 500, so one fetch returns the records of several polls
to a quick application. Pure: times are passed in, in ms.
"""

from __future__ import annotations

from typing import Final

#: An application is quick if it processes a poll's records within this time, in ms. At that pace it finishes records
#: fetched ahead within a tenth of a second.
QUICK_MS: Final = 25
#: The maximum number of records that one fetch may return from all leaders together: the default number that a group
#: may lock per partition.
RECORDS_MAX: Final = 2_000
#: The maximum number of bytes and batches that one fetch may return, estimated from the last response. Each batch costs
#: time on both sides.
BYTES_MAX: Final = 4 << 20
BATCHES_MAX: Final = 500
#: A max.poll.records below this is taken as a limit that the user wants.
_MANY: Final = 500
#: A slow poll is remembered for this many further polls.
_MEMORY: Final = 10


class Ahead:
    """Decides how many records the next fetch may ask for: `most`, which is max.poll.records, or more.

    `is_on`: records are fetched ahead, because there is a backlog and none of the last ten polls was slow.
    """

    __slots__ = ("_fits", "_full", "_most", "_since_slow", "is_on")

    def __init__(self, most: int) -> None:
        self._most = most
        self._since_slow = _MEMORY
        self.is_on = self._full = False
        self._fits = most

    def records(self, leaders: int) -> int:
        """Return how many records the next fetch may request from each leader, if `leaders` leaders are asked in
        parallel."""
        return max(self._most, min(self._fits, RECORDS_MAX // max(1, leaders))) if self.is_on else self._most

    def held(self, held_ms: float) -> None:
        """Note that the application held a poll's records for `held_ms`."""
        if held_ms > QUICK_MS:
            self._since_slow = 0
        elif self._since_slow < _MEMORY:
            self._since_slow += 1
        self.is_on = self._full and self._most >= _MANY and self._since_slow >= _MEMORY

    def unknown(self, held_ms: float) -> None:
        """Note that the application still holds some of a poll's records, so the time it needs for a poll is unknown.
        It has held the others for `held_ms`."""
        self.is_on = False
        if held_ms > QUICK_MS:
            self._since_slow = 0

    def answered(self, records: int, size: int, batches: int) -> None:
        """Note what a response contained in all its partitions: the number of records, their total `size` in bytes, and
        the number of batches. A response with as many records as a poll may return means that there is a backlog."""
        self._full = records >= self._most
        self.is_on = self.is_on and self._full
        if records > 0:
            self._fits = min(records * BYTES_MAX // max(size, 1), records * BATCHES_MAX // max(batches, 1), RECORDS_MAX)
