"""Measures how long empty groups have been unused, to delete those that were unused for too long (GC-46).

Age is counted in served time: the time during which an owner served the shard, so that a member could have joined. It
is the shard's own count, kept in its log. No wall clock is read, and time without an owner does not count. So no group
is deleted early because a clock jumped, a process was stopped, or a cluster was off for a month.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from group_coordinator.core import records
from group_coordinator.core.group import Group
from kip932.ids import TopicIdPartition

#: The maximum served time counted between two readings of the clock: twice the sweep's interval. A longer gap means
#: that the shard was not swept.
_STEP_MAX_MS: Final = 60_000
#: The maximum served time between two records of the count in the log; about this much is lost when an owner dies.
_KEEP_MS: Final = 600_000
#: A group's progress: (partition, start offset, delivery complete count) of each of its share-partitions.
Progress = tuple[tuple[TopicIdPartition, int, int], ...]


class ServedTime:
    """One shard's count of served time, in milliseconds. `kept_ms`: the count in its log."""

    __slots__ = ("_counted_ms", "_counted_until_ms", "kept_ms")

    def __init__(self) -> None:
        self.kept_ms = 0
        self._counted_ms = 0
        self._counted_until_ms: int | None = None

    def keep(self, served_ms: int) -> None:
        """Adopt the count that is now in the log, after a replay or undo."""
        self.kept_ms = served_ms
        self._counted_ms = max(self._counted_ms, served_ms)

    def begin(self, now_ms: int) -> None:
        """Start counting: the shard is served from this moment, and earlier time does not count (GC-32a)."""
        self._counted_until_ms = now_ms

    def at(self, now_ms: int) -> int:
        """Return the count at this time."""
        if self._counted_until_ms is None:
            return self._counted_ms
        return self._counted_ms + min(max(0, now_ms - self._counted_until_ms), _STEP_MAX_MS)

    def count(self, now_ms: int) -> int:
        """Advance the count to this time, and return it."""
        self._counted_ms = self.at(now_ms)
        self._counted_until_ms = now_ms
        return self._counted_ms

    def to_keep(self, retention_ms: int) -> records.ServedTime | None:
        """Return the record that keeps the count, or None when it is not yet time for one."""
        step_ms = min(_KEEP_MS, max(1, retention_ms // 10))
        return records.ServedTime(self._counted_ms) if self._counted_ms - self.kept_ms >= step_ms else None


class EmptyGroups:
    """The empty groups of one shard, and their last seen progress. Soft state except `served`."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.served = ServedTime()
        self._groups = groups
        self._empty: dict[str, None] = {}
        self._progress: dict[str, Progress] = {}

    def __len__(self) -> int:
        return len(self._empty)

    def noted(self, group_id: str, group: Group | None) -> None:
        """Note the group's new value, set by replay or undo; None when it was removed."""
        if group is not None and not group.members:
            self._empty.setdefault(group_id)
        elif group_id in self._empty:
            del self._empty[group_id]
            self._progress.pop(group_id, None)

    def next(self, limit: int) -> Iterator[Group]:
        """Yield the groups to check now, the least recently checked first."""
        for group_id in list(islice(self._empty, limit)):
            del self._empty[group_id]
            self._empty[group_id] = None
            yield self._groups[group_id]

    def moved(self, group_id: str, progress: Progress) -> bool:
        """Note the group's progress. Returns whether it differs from the last one seen: a consumer that is not a member
        uses the group."""
        before = self._progress.get(group_id)
        self._progress[group_id] = progress
        return before is not None and before != progress

    def forget_progress(self, group_id: str) -> None:
        """Treat the next progress seen as a use, since the last use may not have been stored."""
        if group_id in self._progress:
            self._progress[group_id] = ()


def used(group: Group, served_ms: int) -> records.GroupMetadata:
    """Return the record that sets an empty group's last use to this served time."""
    return records.GroupMetadata(group.group_id, group.epoch, group.metadata_hash, 0, served_ms)
