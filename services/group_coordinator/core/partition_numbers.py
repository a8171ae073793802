"""The partitions of one assignment computation as small integers, in canonical order (GC-55)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from group_coordinator.core.views import Assignment


class PartitionNumbers:
    """Numbers the partitions of a computation in canonical order, since sets of integers are fast to build and sort."""

    __slots__ = ("_by_index", "_topics", "count")

    def __init__(self, topics: Sequence[tuple[bytes, Sequence[int]]]) -> None:
        self.count = 0
        self._topics: list[tuple[bytes, int, Sequence[int]]] = []
        self._by_index: dict[bytes, dict[int, int]] = {}
        for topic_id, indexes in topics:
            self._topics.append((topic_id, self.count, indexes))
            self._by_index[topic_id] = dict(zip(indexes, range(self.count, self.count + len(indexes)), strict=True))
            self.count += len(indexes)

    def of(self, partitions: Assignment) -> set[int]:
        """The numbers of `partitions`; partitions that this computation does not number are left out."""
        found: set[int] = set()
        for topic_id, indexes in partitions.items():
            by_index = self._by_index.get(topic_id)
            if by_index is not None:
                found.update([by_index[index] for index in indexes if index in by_index])
        return found

    def grouped(self, numbers: Iterable[int]) -> Assignment:
        """The partitions with these numbers, by topic, in canonical order."""
        ordered = sorted(numbers)
        topics: dict[bytes, tuple[int, ...]] = {}
        first = 0
        for topic_id, start, indexes in self._topics:
            end = bisect_left(ordered, start + len(indexes), first)
            if end > first:
                topics[topic_id] = tuple([indexes[number - start] for number in ordered[first:end]])
            first = end
        return topics
