"""For how long empty groups were not used, and which of them are to be deleted for that (GC-46).

Age is counted in served time: the time during which some owner served the shard, so that a member could have joined.
It is the shard's own count, kept in its log; no wall clock is read, and time in which nobody served does not count. So
nothing is deleted early because a clock jumped, a process stood still, or a cluster was off for a month.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from group_coordinator.core import records
from group_coordinator.core.group import Group
from kip932.ids import TopicIdPartition

#: The most that counts between two looks at the clock: twice the sweep's interval. Longer than that nobody swept.
_STEP_MAX_MS: Final = 60_000
#: How often the count is kept in the log at most; so much of it an owner that dies takes with it.
_KEEP_MS: Final = 600_000
#: A group's progress: what is finished of each of its share-partitions.
Progress = tuple[tuple[TopicIdPartition, int, int], ...]


class ServedTime:
    """One shard's count of served time, in milliseconds. `kept_ms`: what its log says."""

    __slots__ = ("_counted_ms", "_looked_ms", "kept_ms")

    def __init__(self) -> None:
        self.kept_ms = 0
        self._counted_ms = 0
        self._looked_ms: int | None = None

    def keep(self, served_ms: int) -> None:
        """Replay or undo: the log says so much."""
        self.kept_ms = served_ms
        self._counted_ms = max(self._counted_ms, served_ms)

    def begin(self, now_ms: int) -> None:
        """The shard is served from now on; what was before does not count (GC-32a)."""
        self._looked_ms = now_ms

    def at(self, now_ms: int) -> int:
        """The count now."""
        if self._looked_ms is None:
            return self._counted_ms
        return self._counted_ms + min(max(0, now_ms - self._looked_ms), _STEP_MAX_MS)

    def count(self, now_ms: int) -> int:
        """Count on to now."""
        self._counted_ms = self.at(now_ms)
        self._looked_ms = now_ms
        return self._counted_ms

    def to_keep(self, retention_ms: int) -> records.ServedTime | None:
        """The record that keeps the count, when it is time for one."""
        step_ms = min(_KEEP_MS, max(1, retention_ms // 10))
        return records.ServedTime(self._counted_ms) if self._counted_ms - self.kept_ms >= step_ms else None


class EmptyGroups:
    """The empty groups of one shard, and what was seen of their progress. Soft state but for `served`."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.served = ServedTime()
        self._groups = groups
        self._empty: dict[str, None] = {}
        self._progress: dict[str, Progress] = {}

    def __len__(self) -> int:
        return len(self._empty)

    def noted(self, group_id: str, group: Group | None) -> None:
        """Replay or undo has set the group's value."""
        if group is not None and not group.members:
            self._empty.setdefault(group_id)
        elif group_id in self._empty:
            del self._empty[group_id]
            self._progress.pop(group_id, None)

    def next(self, limit: int) -> Iterator[Group]:
        """The groups to look at now, those first that were not looked at for longest."""
        for group_id in list(islice(self._empty, limit)):
            del self._empty[group_id]
            self._empty[group_id] = None
            yield self._groups[group_id]

    def moved(self, group_id: str, progress: Progress) -> bool:
        """Whether more is finished than was seen last: somebody uses the group without being a member."""
        before = self._progress.get(group_id)
        self._progress[group_id] = progress
        return before is not None and before != progress

    def forget_progress(self, group_id: str) -> None:
        """A use may have been seen and not stored: whatever is seen next counts as one, or it would be lost."""
        if group_id in self._progress:
            self._progress[group_id] = ()


def used(group: Group, served_ms: int) -> records.GroupMetadata:
    """The record that an empty group was used when its shard had been served for so long."""
    return records.GroupMetadata(group.group_id, group.epoch, group.metadata_hash, 0, served_ms)
