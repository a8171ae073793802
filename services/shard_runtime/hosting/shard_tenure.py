"""The state a host keeps while it owns its shard: the shard, its lease, the queue, the flush in flight, the last id.

Bookkeeping only, no I/O: `shard_host` decides when things happen, `Retention` which entries a trim must keep.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple

from kip932.errors import CoordinatorNotAvailableError, KafkaError, NotCoordinatorError
from shard_runtime.hosting.compaction_plan import CompactionLimits, Positions
from shard_runtime.hosting.shard import Anchor, CommandT, RecordT, Shard
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import STREAM_START, Appended, Entry, ReaderNotes, StreamId
from shard_runtime.tracing import tracing

#: A reader's note: `<id of the last entry read> <when the note was written, in ms, by the store's clock>`
_READER_NOTE: Final = re.compile(rb"(\d{1,20})-(\d{1,20}) (\d{1,16})")


class PendingCommand:
    """A command, from its decision to its reply."""

    __slots__ = ("anchors", "cold", "effects", "entries", "failure", "future", "reply", "span", "tokens")

    def __init__(self, future: asyncio.Future[object] | None, cold: bool = False) -> None:
        self.future = future
        #: The span of the request that it is for, if that is traced.
        self.span = tracing.current
        self.cold = cold
        self.reply: object = None
        self.failure: KafkaError | None = None
        self.effects: Sequence[object] = ()
        self.entries: list[tuple[str, bytes]] = []
        self.tokens: list[object] = []
        self.anchors: list[Anchor | None] = []

    def fail(self, failure: KafkaError) -> None:
        """Make `failure` the outcome and drop the decision's effects; `settle` then reports it."""
        self.failure = failure
        self.effects = ()

    def refuse(self, failure: KafkaError) -> None:
        """Report `failure` now. Pass a new instance for each command, since each caller raises its own."""
        self.fail(failure)
        self.settle(True)

    def settle(self, lease_valid: bool) -> None:
        """Report the outcome. After the lease's deadline it is NOT_COORDINATOR, although the records are durable
        (CM-3)."""
        if self.future is None or self.future.done():
            return
        if not lease_valid:
            self.future.set_exception(NotCoordinatorError("the lease of this node has lapsed; look up the owner"))
        elif self.failure is not None:
            self.future.set_exception(self.failure)
        else:
            self.future.set_result(self.reply)


@dataclass(slots=True)
class FlushBatch:
    """Commands that are appended in one flush and answered together, in order."""

    commands: list[PendingCommand] = field(default_factory=list)


class EntryAges:
    """Finds the id below which all entries are older than a time span (SR-29, PM).

    It holds a few pairs (time, last id at that time): everything up to that id was appended by then. Entries found by a
    load are treated as appended at the load, so they are kept too long rather than not long enough.
    """

    _MARKS = 10

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        self._marks: deque[tuple[int, StreamId]] = deque()

    def note(self, now_ms: int, last: StreamId) -> None:
        """Note that entries up to `last` are in the stream at `now_ms`."""
        if self._span_ms and (not self._marks or now_ms - self._marks[-1][0] >= self._span_ms // self._MARKS):
            self._marks.append((now_ms, last))

    def keep_from(self, now_ms: int) -> StreamId | None:
        """The id below which every entry is older than `span_ms`; None when that is 0: nothing needs to be kept."""
        if not self._span_ms:
            return None
        marks = self._marks
        while len(marks) > 1 and now_ms - marks[1][0] >= self._span_ms:
            marks.popleft()
        return marks[0][1] if marks and now_ms - marks[0][0] >= self._span_ms else STREAM_START


class TrimBound(NamedTuple):
    """Where a trim must stop; `keep_from` is None when there is no such bound. `malformed`: readers whose notes cannot
    be parsed and are ignored."""

    keep_from: StreamId | None
    malformed: tuple[str, ...] = ()


class Retention:
    """Decides what a trim must keep even though no claim replays it: the history, and entries that live readers have
    not read yet (SR-29).

    Readers note in a hash beside the stream how far they have read (PM-12). Other processes write these notes, so they
    are not trusted: a note can only keep more, and never more than what was appended within the allowed lag.

    A reader is live while its note is younger than the allowed lag and all entries it has not read were appended within
    that lag. Any other reader is ignored: it is dead, or has lost entries already.
    """

    def __init__(self, history_ms: int, readers_max_lag_ms: int) -> None:
        self._history = EntryAges(history_ms)
        #: True when readers may lag by more than the history that is kept anyway: only then do their notes matter.
        self.needs_reader_notes = readers_max_lag_ms > history_ms
        self._lag = EntryAges(readers_max_lag_ms if self.needs_reader_notes else 0)
        self._max_lag_ms = readers_max_lag_ms

    def note(self, now_ms: int, last: StreamId) -> None:
        """Note that entries up to `last` are in the stream at `now_ms`."""
        self._history.note(now_ms, last)
        self._lag.note(now_ms, last)

    def keep_from(self, now_ms: int, notes: ReaderNotes | None) -> TrimBound:
        """The smallest id that must be kept: by the history, or by the live reader that has read least.

        `now_ms` is this owner's clock; a note's age is by the store's clock.
        """
        points = [] if (history := self._history.keep_from(now_ms)) is None else [history]
        malformed: list[str] = []
        lag_limit = self._lag.keep_from(now_ms)
        if notes is not None and lag_limit is not None:
            for name, value in notes.values.items():
                match = _READER_NOTE.fullmatch(value)
                if match is None:
                    malformed.append(name)
                    continue
                read, age_ms = StreamId(int(match[1]), int(match[2])), notes.now_ms - int(match[3])
                if (
                    abs(age_ms) <= self._max_lag_ms and read >= lag_limit
                ):  # abs: the store's clock may have been set back
                    points.append(read)
        return TrimBound(min(points, default=None), tuple(sorted(malformed)))


class ShardTenure(Generic[CommandT, RecordT]):
    """One owner's time with one shard, from `gained` to `lost`."""

    def __init__(self, shard: Shard[CommandT, RecordT], lease: Lease, limits: CompactionLimits) -> None:
        self.shard = shard
        self.lease = lease
        self.positions = Positions(limits)
        self.retention = Retention(limits.history_ms, limits.readers_max_lag_ms)
        self.readers_missed = False
        self.readers_trouble = ""
        self.pending: deque[PendingCommand] = deque()
        self.in_flight: FlushBatch | None = None
        self.flusher: asyncio.Task[None] | None = None
        self.idle = asyncio.Event()
        self.idle.set()
        self.last = StreamId(lease.epoch, 0)
        self.interrupted = False
        self.pauses_seen = lease.pauses
        self.copying = 0
        self.trim_due = False
        self.retry_ms = limits.retry_ms
        self.watch: asyncio.Task[None] | None = None
        self._slices: deque[Sequence[Hashable]] = deque()
        self._compact_after_ms = 0

    @property
    def waiting(self) -> int:
        """The number of commands without a reply yet."""
        return len(self.pending) + (len(self.in_flight.commands) if self.in_flight else 0)

    def end(self) -> None:
        """End the tenure, since the shard is lost: let a waiting release finish and stop the settlement watch."""
        self.idle.set()
        if self.watch is not None:
            self.watch.cancel()

    def take(self, records_max: int, bytes_max: int) -> FlushBatch:
        """Move commands from the queue into the flush: as many as fit into `records_max` records, until these have
        `bytes_max` bytes; at least one."""
        batch = FlushBatch()
        records = size = 0
        while self.pending and size < bytes_max:
            pending = self.pending[0]
            records += len(pending.entries)
            if batch.commands and records > records_max:
                break
            batch.commands.append(self.pending.popleft())
            for _, data in pending.entries:
                size += len(data)
        self.in_flight = batch
        return batch

    def number(self, batch: FlushBatch) -> list[Entry]:
        """The batch's stream entries, with the next consecutive ids of this epoch (SR-7)."""
        epoch, seq = self.last
        numbered = []
        for pending in batch.commands:
            for kind, data in pending.entries:
                seq += 1
                numbered.append(Entry(StreamId(epoch, seq), kind, data))
        return numbered

    def committed(self, batch: FlushBatch, entries: list[Entry], appended: Appended) -> None:
        """Note that the batch is durable: move the last id past it and its no-ops, and note the positions."""
        self.in_flight = None
        self.last = appended.tip
        anchors = (anchor for pending in batch.commands for anchor in pending.anchors)
        for entry, anchor in zip(entries, anchors, strict=True):
            self.positions.note(entry.id, anchor)
        for _ in range(appended.noops):
            self.positions.note(appended.tip, None)
        if self.copying:
            self.copying -= sum(pending.cold for pending in batch.commands)
            if not self.copying:
                self.slice_done()

    def abandon(self) -> list[PendingCommand]:
        """Remove and return all commands without a reply yet, oldest first."""
        commands = [*(self.in_flight.commands if self.in_flight else ()), *self.pending]
        self.in_flight = None
        self.pending.clear()
        return commands

    def plan_compaction(self, now_ms: int) -> bool:
        """Return whether there is a slice to copy now. Plans the slices when the stream has grown past its limit and
        nothing is in quarantine (CM-108)."""
        ready = not self._slices and not self.trim_due and now_ms >= self._compact_after_ms
        if ready and self.positions.due() and not self.shard.quarantined():
            self._slices.extend(self.positions.stale())
            self.trim_due = not self._slices
        return bool(self._slices)

    def next_slice(self) -> list[Hashable]:
        """Remove the next slice from the plan; return those of its keys that are still alive."""
        return self.positions.alive(self._slices.popleft())

    def slice_done(self) -> None:
        """Note that all copies of the slice are confirmed; after the last slice the trim is due."""
        self.trim_due = not self._slices

    def stop_compaction(self, not_before_ms: int) -> None:
        """Drop the plan; do not make another before `not_before_ms`."""
        self._slices.clear()
        self.copying = 0
        self.trim_due = False
        self._compact_after_ms = not_before_ms


def expire(future: asyncio.Future[object], limit_ms: int) -> None:
    """Fail a caller that has waited for `limit_ms`. Nothing is undone: the records may still commit (SC-63)."""
    if not future.done():
        message = f"not confirmed within {limit_ms} ms; it may still take effect, so check before repeating it"
        future.set_exception(CoordinatorNotAvailableError(message))
