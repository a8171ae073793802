"""How many records a consumer fetches ahead of the poll that returns them (CL-136, CL-138).

A leader's work for a request is much the same whether it brings 500 records or 2,000, so an application that works
through polls quickly gets several polls' records with one fetch. Pure: times are passed in, in ms.
"""

from __future__ import annotations

from typing import Final

#: A poll's records take a quick application at most this long, ms. What lies ahead then takes a tenth of a second.
QUICK_MS: Final = 25
#: How many records one fetch may bring, of all leaders together: as many as a group locks of one partition by default.
RECORDS_MAX: Final = 2_000
#: What one fetch may bring, as far as the last answer tells: bytes, and batches, each of which costs both sides time.
BYTES_MAX: Final = 4 << 20
BATCHES_MAX: Final = 500
#: A max.poll.records below this is taken as a limit that the user wants.
_MANY: Final = 500
#: For how many polls a slow one is remembered.
_MEMORY: Final = 10


class Ahead:
    """`most` is max.poll.records. `records` is how many the next fetch may ask for: `most`, or more.

    `is_on`: records are fetched ahead, since there is a backlog, and none of the last ten polls was slow.
    """

    __slots__ = ("_fits", "_full", "_most", "_since_slow", "is_on")

    def __init__(self, most: int) -> None:
        self._most = most
        self._since_slow = _MEMORY
        self.is_on = self._full = False
        self._fits = most

    def records(self, leaders: int) -> int:
        """How many records the next fetch may ask for, when so many leaders are asked at once."""
        return max(self._most, min(self._fits, RECORDS_MAX // max(1, leaders))) if self.is_on else self._most

    def held(self, held_ms: float) -> None:
        """The application held a poll's records for `held_ms`."""
        if held_ms > QUICK_MS:
            self._since_slow = 0
        elif self._since_slow < _MEMORY:
            self._since_slow += 1
        self.is_on = self._full and self._most >= _MANY and self._since_slow >= _MEMORY

    def unknown(self, held_ms: float) -> None:
        """The application keeps some of a poll's records, so how long it needs for a poll is not known. It has held
        the others for `held_ms`."""
        self.is_on = False
        if held_ms > QUICK_MS:
            self._since_slow = 0

    def answered(self, records: int, size: int, batches: int) -> None:
        """An answer brought so many records of all its partitions: a poll's worth, where there is a backlog. They came
        in so many batches of `size` bytes together."""
        self._full = records >= self._most
        self.is_on = self.is_on and self._full
        if records > 0:
            self._fits = min(records * BYTES_MAX // max(size, 1), records * BATCHES_MAX // max(batches, 1), RECORDS_MAX)
