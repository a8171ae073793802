"""Why members gave records up, as far as the stored state has it: by offset, with the delivery count of that moment
(PL-942).

Decides which reasons are kept in memory. `kip932.failures` combines them, as the share coordinator does with the stored
ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from kip932.failures import Failure, merge_failures

_LAST: Final = itemgetter(1)


class Reasons:
    """The reasons of one share-partition, ascending and without overlap. Each is stored already."""

    __slots__ = ("failures",)

    def __init__(self) -> None:
        self.failures: Sequence[Failure] = ()

    def add(self, stored: Sequence[Failure], start_offset: int) -> None:
        """Add reasons that are stored now, in any order, and forget those of records below the start offset."""
        if stored or (self.failures and self.failures[0].first_offset < start_offset):
            self.failures = merge_failures(self.failures, stored, start_offset)


def parts(first: int, last: int, failures: Sequence[Failure]) -> Iterator[Failure]:
    """Cut `first`…`last` where the reason changes, and yield all of it; a part without a reason has an empty one, and
    delivery count 0. `failures`: ascending and without overlap."""
    at = first
    for index in range(bisect_left(failures, first, key=_LAST), len(failures)):
        low, high, count, reason = failures[index]
        if low > last:
            break
        if at < low:
            yield Failure(at, low - 1, 0, "")
        yield Failure(max(at, low), min(high, last), count, reason)
        at = high + 1
    if at <= last:
        yield Failure(at, last, 0, "")
