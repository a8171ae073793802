"""Deliveries that did not happen, or that continue an earlier one: a release or a renewal may take its delivery back,
which restores the delivery count (PL-941).

Counts how many times in a row each record's delivery was taken back, up to a bound. The counts are in memory only: a
leader that loads the share-partition starts again from zero.
"""

from __future__ import annotations

from typing import Final

from partition_leader.share_partition.core.spans import Span

#: How many times in a row a record's delivery can be taken back; the next release counts as a delivery. So a record
#: that no member ever manages to start on still reaches its delivery limit. Five restarts of a worker in a row fit.
IN_A_ROW_MAX: Final = 10
#: How many records of a share-partition are remembered; deliveries of further records cannot be taken back.
RECORDS_MAX: Final = 20_000


class Undelivered:
    """Keeps, by offset, the delivery count to which the record was last taken back, and how many times in a row. Over
    the object's life, `granted` counts the records whose delivery was taken back, and `refused` those whose delivery
    counted because a bound was reached; failed writes are not subtracted."""

    __slots__ = ("_taken_back", "granted", "in_a_row_max", "records_max", "refused")

    def __init__(self, in_a_row_max: int = IN_A_ROW_MAX, records_max: int = RECORDS_MAX) -> None:
        self.in_a_row_max = in_a_row_max
        self.records_max = records_max
        self.granted = 0
        self.refused = 0
        self._taken_back: dict[int, tuple[int, int]] = {}

    def take_back(self, first: int, last: int, count: int, start_offset: int) -> list[Span]:
        """Note that the current delivery of `first`…`last`, whose delivery count is `count`, does not count. Returns
        the spans for which it was not taken back yet and for which the bounds allow this. After a delivery that
        counted, a new series starts."""
        if len(self._taken_back) + last - first + 1 > self.records_max:
            self.forget(start_offset)
        back, granted = self._taken_back, list[Span]()
        for offset in range(first, last + 1):
            former, times = back.get(offset, (count - 1, 0))
            if former == count:
                continue  # by a renewal: the record is still held, and its count is the one from before
            times = times + 1 if former == count - 1 else 1
            if times > self.in_a_row_max or (offset not in back and len(back) >= self.records_max):
                self.refused += 1
                continue
            back[offset] = count - 1, times
            if granted and granted[-1][1] + 1 == offset:
                granted[-1] = granted[-1][0], offset
            else:
                granted.append((offset, offset))
        self.granted += sum(end - begin + 1 for begin, end in granted)
        return granted

    def undo(self, first: int, last: int) -> None:
        """Undo `take_back` for a release that did not take effect; its records are held as before."""
        for offset in range(first, last + 1):
            noted = self._taken_back.get(offset)
            if noted is None:
                continue
            former, times = noted
            if times > 1:
                self._taken_back[offset] = former, times - 1
            else:
                del self._taken_back[offset]

    def times(self, offset: int, count: int) -> int:
        """Return how many times in a row the delivery of a record with this count was taken back."""
        former, times = self._taken_back.get(offset, (count, 0))
        return times if former == count else 0

    def forget(self, start_offset: int) -> None:
        """Forget records below the start offset, which will not be delivered again."""
        self._taken_back = {offset: noted for offset, noted in self._taken_back.items() if offset >= start_offset}

    def most(self) -> tuple[int, int]:
        """Return the highest number of times in a row that a record's delivery was taken back, and its offset; 0 and −1
        if there is none."""
        return max(((times, offset) for offset, (_, times) in self._taken_back.items()), default=(0, -1))

    def __len__(self) -> int:
        return len(self._taken_back)
