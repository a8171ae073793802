"""What a leader remembers of share-partitions between two computations: counts of objects that were dropped, samples
for rates, stored progress while they are not loaded (PL-952, PL-954)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kip932.ids import SharePartitionKey
from partition_leader.progress.core.figures import NOT_RECENT, Recent
from partition_leader.progress.core.window_view import UNWATCHED, Watched
from partition_leader.share_partition.core.finished import NONE_FINISHED, Finished
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import DropReason

#: How many samples are kept: what is recent began as many rounds ago.
SAMPLES_MAX: Final = 4
UNKNOWN: Final = -1

#: A group and a topic id.
GroupTopic = tuple[str, bytes]


class Sample(NamedTuple):
    """The counts at one moment (ms)."""

    at_ms: int
    finished: int
    arrived: int


class StoredProgress(NamedTuple):
    """What the share coordinator had stored at a moment (ms). `start_offset`: −1 if none is chosen yet. `complete`: how
    many records from there on are finished; −1: unknown."""

    start_offset: int
    complete: int
    at_ms: int


class Appended(NamedTuple):
    """When the first record from an offset on was appended (ms since 1970)."""

    offset: int
    wall_ms: int


class Tracked:
    """One share-partition of a partition that is led under `epoch`."""

    __slots__ = ("before", "core", "dropped_ms", "epoch", "oldest", "samples", "stored", "watched")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.before: Finished = NONE_FINISHED  # by objects that were dropped
        self.core: SharePartition | None = None  # the one that is loaded, or retires
        self.dropped_ms = -1  # what was read from the store up to then is out of date
        self.samples: tuple[Sample, ...] = ()
        self.stored: StoredProgress | None = None
        self.watched: Watched = UNWATCHED
        self.oldest: Appended | None = None

    @property
    def finished(self) -> Finished:
        """What was finished since the leader began to count."""
        return self.before if self.core is None else self.before.plus(self.core.state.finished)

    def dropped(self, core: SharePartition) -> None:
        """Keep the counts of an object that is dropped, and what it has stored, if that is known."""
        self.before, self.core, state = self.before.plus(core.state.finished), None, core.state
        self.stored, self.dropped_ms, written = None, state.now_ms, state.write_back.last_written
        if written is not None and state.retirement is not None and state.retirement.reason is DropReason.RELEASED:
            self.stored = StoredProgress(*written, state.now_ms)

    def sample(self, now_ms: int, finished: int, arrived: int) -> None:
        """Keep these counts, and forget the oldest ones."""
        self.samples = (*self.samples[1 - SAMPLES_MAX :], Sample(now_ms, finished, arrived))

    def recent(self, now_ms: int, finished: int, arrived: int) -> Recent:
        """Return what happened since the oldest sample."""
        if not self.samples or now_ms <= self.samples[0].at_ms:
            return NOT_RECENT
        oldest = self.samples[0]
        return Recent(now_ms - oldest.at_ms, finished - oldest.finished, arrived - oldest.arrived)

    def fresh(self, now_ms: int, valid_ms: int) -> StoredProgress | None:
        """Return the stored progress unless it is older than `valid_ms`."""
        stored = self.stored
        return None if stored is None or now_ms - stored.at_ms > valid_ms else stored


class TrackedPartitions:
    """All share-partitions of a process that are loaded, or have stored state, in partitions that it leads."""

    def __init__(self) -> None:
        self.by_key: dict[SharePartitionKey, Tracked] = {}
        self._departed: dict[GroupTopic, Finished] = {}

    def obtain(self, key: SharePartitionKey, epoch: int) -> Tracked:
        """Return what is remembered under this leader epoch."""
        found = self.by_key.get(key)
        if found is None or found.epoch != epoch:
            if found is not None:
                _add(self._departed, key, found.finished)
            found = self.by_key[key] = Tracked(epoch)
        return found

    def watched(self, key: SharePartitionKey) -> Watched:
        """Return since when the first held records have been held, as of the last computation."""
        found = self.by_key.get(key)
        return UNWATCHED if found is None else found.watched

    def dropped(self, key: SharePartitionKey, core: SharePartition, epoch: int) -> None:
        """Keep the counts of an object that is dropped, unless a later epoch is known already."""
        found = self.by_key.get(key)
        if found is None or found.epoch <= epoch:
            self.obtain(key, epoch).dropped(core)

    def note(self, key: SharePartitionKey, epoch: int, stored: StoredProgress) -> None:
        """Note what was read about a share-partition, unless an object of it was dropped since then."""
        found = self.obtain(key, epoch)
        if stored.at_ms > found.dropped_ms:
            found.stored = stored

    def end(self, key: SharePartitionKey, asked_ms: int) -> None:
        """Note that a share-partition had no state at `asked_ms`; if it is not loaded either, it is forgotten with its
        counts."""
        found = self.by_key.get(key)
        if found is None or found.dropped_ms >= asked_ms:
            return
        found.stored = None
        if found.core is None:
            del self.by_key[key]

    def end_departed(self, wanted: Callable[[GroupTopic], bool]) -> None:
        """Keep the counts of departed partitions only for these groups and topics."""
        self._departed = {of: finished for of, finished in self._departed.items() if wanted(of)}

    def left(self, keys: Iterable[SharePartitionKey]) -> dict[GroupTopic, Finished]:
        """Forget share-partitions whose partitions are not led any more, except their counts. Returns these with those
        of earlier ones, so that the counters of a group and topic do not fall. Objects that still finish their writes
        are forgotten later."""
        ending: list[tuple[SharePartitionKey, Finished]] = []
        for key in keys:
            tracked = self.by_key.get(key)
            if tracked is not None and tracked.core is not None:
                ending.append((key, tracked.finished))
            elif tracked is not None:
                _add(self._departed, key, self.by_key.pop(key).before)
        departed = dict(self._departed)
        for key, finished in ending:
            _add(departed, key, finished)
        return departed


def _add(counts: dict[GroupTopic, Finished], key: SharePartitionKey, finished: Finished) -> None:
    of = key.group_id, key.topic_id
    counts[of] = counts.get(of, NONE_FINISHED).plus(finished)
