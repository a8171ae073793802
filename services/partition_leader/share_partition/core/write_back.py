"""The work that waits for the persister: queued operations, the outstanding write, and changes not yet stored.

Decides when a write is due (PL-705, PL-621) and what it contains (PL-702 … PL-704). Never changes a record:
`write_results` commits or rolls back when the result arrives.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Final

from kip932.failures import Failure, merge_failures
from kip932.state_batches import ArchivedRange, StateBatch
from partition_leader.share_partition.core.advance import Progress, committed, prospective
from partition_leader.share_partition.core.archived import DELIVERY_LIMIT, stored_ranges
from partition_leader.share_partition.core.delays import delayed_in, with_delays
from partition_leader.share_partition.core.effects import (
    CAUSE_CATCH_UP,
    CAUSE_INIT,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    NO_COUNTERS,
    AcquiredRange,
    Counters,
    Persist,
    total,
)
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.limits import LIMITS, Limits
from partition_leader.share_partition.core.operations import Operation
from partition_leader.share_partition.core.spans import Span, normalized

CATCH_UP_MS: Final = 5_000  # PL-621
_LAST_OFFSET: Final = itemgetter(1)


@dataclass(slots=True)
class Unwritten:
    """Changes in memory that no successful write has stored (the dirty set of PL-621)."""

    spans: list[Span] = field(default_factory=list)
    archiving: list[Span] = field(default_factory=list)  # their dead-letter flow starts once a write has stored them
    archived: list[AcquiredRange] = field(default_factory=list)  # at the delivery limit; reported once durable
    counters: Counters = NO_COUNTERS
    cause: int = 0

    def __bool__(self) -> bool:
        return bool(self.spans)


@dataclass(slots=True)
class Write:
    """The outstanding write: its operations, their spans (ascending and joined), and the other changes that it carries.

    `began_ms`: when it was started; 0 for the first write of a start offset. `failures`: why its operations give
    records up (PL-942).
    """

    write_id: int
    operations: list[Operation]
    spans: list[Span]
    carried: Unwritten
    progress: Progress
    is_init: bool = False
    began_ms: int = 0
    failures: tuple[Failure, ...] = ()


class WriteBack:
    """Keeps at most one write outstanding; changes made meanwhile are merged into the next (PL-705)."""

    __slots__ = (
        "_sweep_at",
        "_sweep_at_least",
        "_unsettled_since",
        "_write_id",
        "confirmed_start",
        "dirty",
        "last_written",
        "outstanding",
        "queued",
        "unresolved",
        "urgent",
    )

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.queued: list[Operation] = []
        self.outstanding: Write | None = None
        self.unresolved: list[Operation] = []  # outcome unknown; no write is sent before the read-back (PL-707)
        self.dirty = Unwritten()
        self.urgent = False
        self.last_written: Progress | None = None
        #: Nothing below it will be delivered again: the store has this start offset, or the log starts there (PL-404).
        self.confirmed_start = 0
        self._unsettled_since: int | None = None
        self._write_id = 0
        self._sweep_at = self._sweep_at_least = limits.unwritten_spans

    @property
    def is_free(self) -> bool:
        """True if a write may be sent now."""
        return self.outstanding is None and not self.unresolved

    @property
    def has_work(self) -> bool:
        """True if something must be written that cannot wait for PL-621's five seconds."""
        return bool(self.queued) or self.urgent

    def confirm_start(self, start_offset: int) -> None:
        """Note that the store has this start offset, or that the log starts there."""
        self.confirmed_start = max(self.confirmed_start, start_offset)

    def request_start_write(self, window: Window) -> None:
        """Request a write now if the store does not have the start offset, because this object ends before PL-621's
        five seconds are over (PL-523)."""
        self.urgent |= self.confirmed_start < window.start_offset

    def note(
        self, spans: list[Span], cause: int = CAUSE_CATCH_UP, counters: Counters | None = None, urgent: bool = False
    ) -> None:
        """Add spans to the dirty set; `urgent` requests a write now."""
        if not spans:
            return
        dirty = self.dirty
        dirty.spans += spans
        dirty.cause |= cause
        if counters is not None:
            dirty.counters = dirty.counters.plus(counters)
        self.urgent |= urgent
        if len(dirty.spans) >= self._sweep_at:
            dirty.spans = normalized(dirty.spans, 0)
            self._sweep_at = max(self._sweep_at_least, 2 * len(dirty.spans))

    def is_due(self, window: Window, now_ms: int) -> bool:
        """Return whether to write now. Starts PL-621's five seconds if memory is ahead of the stored state and no write
        is outstanding."""
        if not self.is_free:
            self._unsettled_since = None
            return False
        if self.has_work:
            return True
        if not self.dirty and self.last_written == committed(window):
            self._unsettled_since = None
            return False
        if self._unsettled_since is None:
            self._unsettled_since = now_ms
        return now_ms >= self._unsettled_since + CATCH_UP_MS

    def next_deadline(self) -> int | None:
        """Return when PL-621's write is due; None if none is."""
        if self._unsettled_since is None or not self.is_free:
            return None
        return self._unsettled_since + CATCH_UP_MS

    def build_init(self, window: Window, generation: int, state_epoch: int) -> Persist:
        """Build the write of a start offset that was just resolved (PL-609)."""
        return self._send(window, generation, state_epoch, is_init=True)

    def build(self, window: Window, generation: int, state_epoch: int) -> Persist:
        """Build one write with everything queued and everything dirty (PL-704, PL-705)."""
        return self._send(window, generation, state_epoch, is_init=False)

    def _send(self, window: Window, generation: int, state_epoch: int, is_init: bool) -> Persist:
        progress = prospective(window)
        operations, self.queued = self.queued, []
        carried, self.dirty = self.dirty, Unwritten()
        self.urgent = False
        self._unsettled_since = None
        spans = written = normalized([span for operation in operations for span in operation.spans], 0)
        if carried.spans or (spans and spans[0][0] < window.start_offset):
            carried.spans = normalized(carried.spans, window.start_offset)
            written = normalized(spans + carried.spans, window.start_offset)
        batches, finished = _content(window, written, progress.start_offset)
        delays = list(chain.from_iterable([found for one in operations if (found := one.delays)]))
        if window.delayed:
            delays += delayed_in(window, carried.spans)
        if delays:
            batches = with_delays(batches, delays)
        cause = CAUSE_INIT if is_init else carried.cause
        for operation in operations:
            cause |= operation.cause
        counters = total([carried.counters, finished, *[operation.counters for operation in operations]])
        failures = _failures(operations, progress.start_offset)
        self._write_id += 1
        self.outstanding = Write(self._write_id, operations, spans, carried, progress, is_init, failures=failures)
        return Persist(
            self._write_id,
            generation,
            state_epoch,
            progress.start_offset,
            progress.delivery_complete_count,
            tuple(batches),
            cause or CAUSE_CATCH_UP,
            counters,
            window.next_offset,
            bool(delays),
            _archived(window, operations, carried),
            failures,
        )

    def take(self, write_id: int) -> Write | None:
        """Remove and return the outstanding write, which is over now; None if `write_id` is not outstanding."""
        write = self.outstanding
        if write is None or write.write_id != write_id:
            return None
        self.outstanding = None
        return write

    def put_back(self, write: Write) -> None:
        """Make the changes of a failed write dirty again; the next write carries them (PL-621)."""
        carried = write.carried
        self.dirty.spans += carried.spans
        self.dirty.archiving += carried.archiving
        self.dirty.archived += carried.archived
        self.dirty.cause |= carried.cause
        self.dirty.counters = self.dirty.counters.plus(carried.counters)

    def abandon(self) -> list[Operation]:
        """Discard everything; return the operations that still wait for an answer."""
        waiting = [*(self.outstanding.operations if self.outstanding else ()), *self.queued]
        self.outstanding, self.queued, self.unresolved = None, [], []
        self.dirty, self.urgent, self._unsettled_since = Unwritten(), False, None
        return [operation for operation in waiting if not operation.answered]


def _failures(operations: list[Operation], start_offset: int) -> tuple[Failure, ...]:
    """Return why the operations give records up, within the limit of a write (PL-942); most have no reasons."""
    found = [failures for operation in operations if (failures := operation.failures)]
    return merge_failures((), chain.from_iterable(found), start_offset) if found else ()


def _archived(window: Window, operations: list[Operation], carried: Unwritten) -> tuple[ArchivedRange, ...]:
    """Return the records that the write gives up for good (PM-20 X9); most writes give up none."""
    marks = [mark for operation in operations for mark in operation.archived]
    letters = [letter for operation in operations for letter in operation.dead_letters]
    marks += [(found, DELIVERY_LIMIT) for found in carried.archived]
    letters += [(span, DLQ_DELIVERY_COUNT_EXCEEDED) for span in carried.archiving]
    return tuple(stored_ranges(window, marks, letters)) if marks or letters else ()


def _content(window: Window, spans: list[Span], start_offset: int) -> tuple[list[StateBatch], Counters]:
    """Return the state batches of the spans from `start_offset` on (PL-703, PL-704), and the delivery counts of the
    records that they finish. Acquired is never written: a record in that state has been acquired again since."""
    batches: list[StateBatch] = []
    max_dc = sum_dc = 0
    for batch, parts in window.grouped(spans):
        found, max_count, sum_counts = batch.states_to_write(parts)
        max_dc, sum_dc = max(max_dc, max_count), sum_dc + sum_counts
        if found and found[0].first_offset < start_offset:
            found = found[bisect_left(found, start_offset, key=_LAST_OFFSET) :]
            if found and found[0].first_offset < start_offset:
                found[0] = found[0]._replace(first_offset=start_offset)
        if found and batches and _continues(batches[-1], found[0]):
            found[0] = found[0]._replace(first_offset=batches.pop().first_offset)
        batches += found
    return batches, Counters(max_dc=max_dc, sum_dc=sum_dc) if sum_dc else NO_COUNTERS


def _continues(left: StateBatch, right: StateBatch) -> bool:
    return left[1] + 1 == right[0] and left[2:] == right[2:]
