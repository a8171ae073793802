"""Helpers of the pipeline's tests: in-memory streams for the planner, and entries as the services write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import HealthCheck, settings

from kip932.ids import SharePartitionKey
from kip932.state_batches import NO_STATS, StateBatch, WriteStats
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareUpdate
from share_metrics.reader import EntryId, Range, Tip
from share_metrics.reader.decoding import RawEntry

#: No deadline for examples, since a busy machine is not a failure.
UNHURRIED = settings(suppress_health_check=[HealthCheck.too_slow])

STREAM = "{sgs:0}:log"
TOPIC = bytes(15) + b"\x01"
KEY = SharePartitionKey("G1", TOPIC, 0)


class MemoryStream:
    """A stream of ids: `runs` as the reader returns them, by epoch, and a tip as the store reports it."""

    def __init__(self, ids: Sequence[EntryId], *, consecutive: bool = True) -> None:
        self.ids = list(ids)
        self.consecutive = consecutive
        self.added = len(self.ids)
        self.last = self.ids[-1] if self.ids else EntryId(0, 0)

    def append(self, *ids: EntryId) -> None:
        self.ids += ids
        self.added += len(ids)
        self.last = self.ids[-1]

    def trim(self, count: int) -> None:
        """Remove the `count` oldest entries."""
        del self.ids[:count]

    def lose_tail(self, count: int) -> None:
        """Lose the newest entries, as a fail-over does: as if they were never added."""
        del self.ids[len(self.ids) - count :]
        self.added -= count
        self.last = self.ids[-1] if self.ids else EntryId(0, 0)

    def restore(self, first: int, last: int) -> None:
        """Hold what a backup has, entries `first` up to `last` of those stored now; nothing was ever trimmed there."""
        self.ids = self.ids[first : last + 1]
        self.added = len(self.ids)
        self.last = self.ids[-1] if self.ids else EntryId(0, 0)

    @property
    def tip(self) -> Tip:
        return Tip(self.last, self.added, len(self.ids), self.ids[0] if self.ids else EntryId(0, 0))

    def runs(self, stream: str, after: EntryId, through: EntryId, limit: int | None) -> Iterator[Range]:
        found = [one for one in self.ids if after < one <= through][:limit]
        for epoch in sorted({one.epoch for one in found}):
            here = [one for one in found if one.epoch == epoch]
            yield Range(stream, after, here[-1], len(here))
            after = here[-1]

    def within(self, piece: Range) -> list[EntryId]:
        return [one for one in self.ids if piece.after < one <= piece.through]


def epochs(*lengths: int) -> list[EntryId]:
    """Return ids of epochs 1, 2, … with this many entries each, the claim `<e>-0` included."""
    return [EntryId(epoch, seq) for epoch, length in enumerate(lengths, start=1) for seq in range(length)]


def snapshot(start: int, complete: int = 0, *, epoch: int = 0, batches: Sequence[StateBatch] = (),
             stats: WriteStats = NO_STATS, key: SharePartitionKey = KEY, create_ms: int = 1_000, write_ms: int = 1_000,
             state_epoch: int = 1) -> ShareSnapshot:  # fmt: skip
    """Return a snapshot with the fields that matter here."""
    return ShareSnapshot(
        key, epoch, state_epoch, 1, 0, start, complete, create_ms, write_ms, tuple(batches), 1, 0, state_epoch, stats
    )


def update(start: int = -1, complete: int = 0, *, epoch: int = 0, batches: Sequence[StateBatch] = (),
           stats: WriteStats = NO_STATS, key: SharePartitionKey = KEY) -> ShareUpdate:  # fmt: skip
    """Return an update with the fields that matter here; a start of −1 is not written."""
    return ShareUpdate(key, epoch, 1, 0, start, complete, tuple(batches), stats)


def state_entry(at: EntryId, record: ShareRecord, wall_ms: int = 1_000, stream: str = STREAM) -> RawEntry:
    """Return the entry that the share coordinator writes for a record."""
    letter, data = ShareStateCodec().encode(record, wall_ms)
    return RawEntry(stream, at, letter, data)
