"""The window of one share-partition: cached batches in offset order, start and end offset, gap window, locks.

Owns the positions of batches and every change of a record's code, so that it can keep the counts of PL-125 and the
index of Available batches up to date. Never decides which change is made: acquire, acknowledge, expiry and advance do.

Cached batches never overlap (PL-004). One that is wholly below the start offset is removed at once: nothing can be
delivered from it, its acknowledgements are no-ops (PL-404), and anything that T14 wrote about it would be cut off
(PL-622, PL-704, 12.19).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from kip932.ids import STATE_AVAILABLE
from partition_leader.share_partition.core.batch import NO_MEMBER, InFlightBatch
from partition_leader.share_partition.core.invariants import check_window
from partition_leader.share_partition.core.limits import LIMITS, Limits
from partition_leader.share_partition.core.locks import LockEntry, LockHeap
from partition_leader.share_partition.core.pieces import pieces_of
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.transitions import TransitionTable
from partition_leader.share_partition.core.undelivered import Undelivered

_FIRST: Final = itemgetter(0)


class Window:
    """Everything between the start and the end offset. `end_offset` is the next offset to fetch while nothing is
    cached, otherwise the last in-flight offset, inclusive (PL-005)."""

    __slots__ = (
        "_batches",
        "_delayed_through",
        "_firsts",
        "_head",
        "_hints",
        "closing",
        "counting",
        "counts_records",
        "delayed",
        "end_offset",
        "gap",
        "joined_at",
        "limits",
        "locks",
        "renewals",
        "start_offset",
        "undelivered",
    )

    def __init__(self, start_offset: int = 0, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.gap: tuple[int, int] | None = None  # lowest unresolved hole offset, window end (PL-606)
        self.closing = 0  # offsets of all cached batches that are terminal or about to be
        # True from the first delayed record until the start offset has passed the last record that was ever delayed
        # (PL-935).
        self.counts_records = False
        self.counting = 0
        self.delayed = 0
        self._delayed_through = -1
        self.joined_at = (0, 0)  # numbers of batches and closing records when settled batches were last joined
        self.locks = LockHeap(limits.lock_entries)
        self.renewals = LockHeap(limits.lock_entries)  # the renewed ones among them, for explanations (PL-822)
        self.undelivered = Undelivered()
        self._firsts: list[int] = []  # parallel to _batches; entries before _head are removed
        self._batches: list[InFlightBatch] = []
        self._head = 0
        self._hints: list[int] = []  # firsts of batches that may hold Available records

    # Positions.

    @property
    def is_empty(self) -> bool:
        """True if nothing is cached."""
        return self._head == len(self._batches)

    @property
    def batch_count(self) -> int:
        """The number of cached batches."""
        return len(self._batches) - self._head

    @property
    def first_offset(self) -> int:
        """The first cached offset; valid only when something is cached."""
        return self._firsts[self._head]

    @property
    def last_offset(self) -> int:
        """The last cached offset; valid only when something is cached."""
        return self._batches[-1].last

    @property
    def in_flight(self) -> int:
        """The number of offsets in flight, including terminal records and holes between start and end (PL-130)."""
        return 0 if self.is_empty else self.end_offset - self.start_offset + 1

    @property
    def next_offset(self) -> int:
        """The first offset never fetched, exported as SPEO (PL-005)."""
        return self.end_offset if self.is_empty else self.end_offset + 1

    @property
    def open_gap(self) -> tuple[int, int] | None:
        """The gap window while it is active, that is, as long as it ends at end_offset (PL-607); None otherwise."""
        gap = self.gap
        return gap if gap is not None and gap[1] == self.end_offset and not self.is_empty else None

    @property
    def front_offset(self) -> int:
        """The first cached offset, or the start offset if nothing is cached."""
        return self._firsts[self._head] if self._head < len(self._firsts) else self.start_offset

    @property
    def front_code(self) -> int:
        """The code of the first cached record that is not below the start offset; −1 if there is none."""
        if self._head == len(self._batches):
            return -1
        batch = self._batches[self._head]
        if batch.codes is None:
            return batch.code
        at = max(self.start_offset - batch.first, 0)
        return batch.codes[at] if at < len(batch.codes) else -1

    def floor(self, offset: int) -> InFlightBatch | None:
        """The cached batch with the highest first offset at or below `offset`."""
        at = bisect_right(self._firsts, offset, self._head) - 1
        return self._batches[at] if at >= self._head else None

    def overlapping(self, first: int, last: int) -> Iterator[InFlightBatch]:
        """Cached batches with an offset in `first`…`last`, in order. Add or remove no batches during the iteration."""
        batches, size = self._batches, len(self._batches)
        at = (
            self._index_ending_at_or_after(first) if first <= last else size
        )  # an empty span, which the start offset has passed
        while at < size and batches[at].first <= last:
            yield batches[at]
            at += 1

    def _index_ending_at_or_after(self, offset: int) -> int:
        """Index of the first cached batch that ends at or after `offset`."""
        at = bisect_right(self._firsts, offset, self._head) - 1
        return at + 1 if at < self._head or self._batches[at].last < offset else at

    def pieces(self, spans: Iterable[Span]) -> Iterator[tuple[InFlightBatch, int, int]]:
        """The parts of the spans that are cached, batch by batch. Cheap for many short spans of one batch."""
        batch: InFlightBatch | None = None
        for first, last in spans:
            if batch is not None and batch.first <= first and last <= batch.last:
                yield batch, first, last
                continue
            for batch in self.overlapping(first, last):
                yield batch, max(first, batch.first), min(last, batch.last)

    def grouped(self, spans: Sequence[Span]) -> Iterator[tuple[InFlightBatch, list[Span]]]:
        """The cached parts of ascending, disjoint spans, batch by batch."""
        at, size, low = 0, len(spans), -1
        while at < size:
            low = max(low, spans[at][0])
            found = self._index_ending_at_or_after(low)
            if found == len(self._batches):
                return
            batch = self._batches[found]
            low = max(low, batch.first)
            if spans[at][1] < low:
                at += 1
                continue
            stop = at + 1 if at + 1 == size else bisect_right(spans, batch.last, at + 1, key=_FIRST)
            parts = list(spans[at:stop])
            parts[0] = (low, parts[0][1])
            at = stop
            if parts[-1][1] > batch.last:
                parts[-1] = (parts[-1][0], batch.last)
                at, low = stop - 1, batch.last + 1
            yield batch, parts

    def batches_before(self, offset: int) -> int:
        """Count the cached batches that start below `offset`."""
        return bisect_left(self._firsts, offset, self._head) - self._head

    def starting_in(self, first: int, last: int) -> list[InFlightBatch]:
        """Cached batches whose first offset is in `first`…`last` (PL-224)."""
        low = bisect_left(self._firsts, first, self._head)
        return self._batches[low : bisect_right(self._firsts, last, low)]

    def last_starting_in(self, first: int, last: int) -> InFlightBatch | None:
        """The last of `starting_in`, without making the list."""
        found = self.floor(last)
        return found if found is not None and found.first >= first else None

    def walk(self) -> Iterator[InFlightBatch]:
        """All cached batches in order."""
        for at in range(self._head, len(self._batches)):
            yield self._batches[at]

    # Available records.

    def available_in(self, first: int, last: int) -> list[InFlightBatch]:
        """Batches that start in `first`…`last` and hold Available records, in order."""
        low = bisect_left(self._hints, first)
        high = bisect_right(self._hints, last, low)
        found = [self.floor(first) for first in self._hints[low:high]]
        result = [batch for batch in found if batch is not None and batch.available]
        if len(result) < len(found):
            self._keep_hints(low, high)
        return result

    def first_available(self) -> int | None:
        """The lowest Available offset, pending ones left out (PL-202); None if there is none."""
        hints = self._hints
        for at, first in enumerate(hints):
            batch = self.floor(first)
            if batch is not None and batch.first == first and batch.available:
                del hints[:at]
                if batch.codes is None:
                    return max(first, self.start_offset)
                return first + batch.codes.index(STATE_AVAILABLE)
            if batch is not None and batch.first == first:
                batch.hinted = False
        hints.clear()
        return None

    def _keep_hints(self, low: int, high: int) -> None:
        keep: list[int] = []
        for first in self._hints[low:high]:
            batch = self.floor(first)
            if batch is None or batch.first != first:
                continue
            if batch.available:
                keep.append(first)
            else:
                batch.hinted = False
        self._hints[low:high] = keep

    def forget_spent_hints(self, first: int, last: int) -> None:
        """Drop the hints in `first`…`last` whose batch has no Available records left."""
        low = bisect_left(self._hints, first)
        high = bisect_right(self._hints, last, low)
        if high > low:
            self._keep_hints(low, high)

    def _hint(self, batch: InFlightBatch) -> None:
        if batch.available and not batch.hinted:
            batch.hinted = True
            if not self._hints or batch.first > self._hints[-1]:
                self._hints.append(batch.first)
            else:
                insort(self._hints, batch.first)

    # Changes. Nothing else sets a code, except `_take` in bad_record_isolation for single Available records.

    def add(self, batch: InFlightBatch) -> None:
        """Cache a batch; it must not overlap another."""
        if self.is_empty or batch.first > self._firsts[-1]:
            self._firsts.append(batch.first)
            self._batches.append(batch)
        else:
            at = bisect_left(self._firsts, batch.first, self._head)
            self._firsts.insert(at, batch.first)
            self._batches.insert(at, batch)
        self._tally(batch, 1)
        self._hint(batch)

    def _tally(self, batch: InFlightBatch, sign: int) -> None:
        self.closing += sign * batch.closing
        if self.counts_records:
            self.counting += sign * batch.counting
            self.delayed += sign * batch.delayed

    def recode(self, batch: InFlightBatch, first: int, last: int, table: TransitionTable) -> bool:
        """Map `first`…`last` of the batch through a transition table; return whether any record changed. Raises
        IllegalTransitionError, with nothing changed, for a record in a state that the trigger must not encounter
        (PL-102)."""
        if self.counts_records:
            self._tally(batch, -1)
            try:
                changed = batch.recode(first, last, table)
            finally:
                self._tally(batch, 1)
        else:
            closing = batch.closing
            changed = batch.recode(first, last, table)
            self.closing += batch.closing - closing
        if not changed:
            return False
        if batch.available and not batch.hinted:
            self._hint(batch)
        return True

    def assign(self, batch: InFlightBatch, first: int, codes: bytes | bytearray) -> None:
        """Set the code of each offset of a stretch of the batch."""
        self._tally(batch, -1)
        batch.assign(first, codes)
        self._tally(batch, 1)
        self._hint(batch)

    def settle(self, batch: InFlightBatch, spans: Sequence[Span], table: TransitionTable) -> None:
        """Map many short spans of the batch through a transition table, and clear owner and lock of the changed
        records. Raises IllegalTransitionError as `recode` does."""
        self._tally(batch, -1)
        try:
            batch.settle(spans, table)
        finally:
            self._tally(batch, 1)
        self._hint(batch)

    def lock(self, first: int, last: int, deadline: int) -> None:
        """Add one lock entry for an acquired or renewed stretch."""
        self.locks.push(deadline, first, last, self.is_live)

    def delay(self, batch: InFlightBatch, first: int, last: int, until_ms: int) -> None:
        """Delay a stretch, whose code is DELAYED, until `until_ms`: no member holds it, and it gets one entry for the
        delay's end (PL-932)."""
        batch.hold(first, last, NO_MEMBER, until_ms)
        self.lock(first, last, until_ms)
        self.note_delayed(last)

    def note_delayed(self, last: int) -> None:
        """Note that records up to `last` are or were delayed: this starts counting records rather than offsets
        (PL-935)."""
        self._delayed_through = max(self._delayed_through, last)
        if not self.counts_records:
            self.counts_records = True
            self.counting = sum(batch.counting for batch in self.walk())
            self.delayed = sum(batch.delayed for batch in self.walk())

    def renew(self, first: int, last: int, deadline: int) -> None:
        """Add one lock entry for a renewed stretch, and remember that it was renewed."""
        self.lock(first, last, deadline)
        self.renewals.push(deadline, first, last, self.is_live)

    def first_live(self, entry: LockEntry) -> int | None:
        """The first cached offset of the entry that still has this exact lock end (PL-303); None if there is none."""
        deadline, first, last = entry
        batches, size = self._batches, len(self._batches)
        at = self._index_ending_at_or_after(first)
        while at < size and batches[at].first <= last:
            live = batches[at].first_held_until(deadline, first, last)
            if live is not None:
                return live
            at += 1
        return None

    def is_live(self, entry: LockEntry) -> bool:
        """Return whether some record of the entry still has this exact lock end (PL-303)."""
        return self.first_live(entry) is not None

    def next_lock_end(self) -> int | None:
        """Return when the next lock or delay ends (ms); None if there is none."""
        return self.locks.next_deadline(self.first_live)

    def merge_settled(self, first: int, end: int) -> None:
        """Merge the batches within `first`…`end` − 1, all finished, Archiving or delayed, into as few as possible
        (PL-915, PL-935)."""
        low = self._index_ending_at_or_after(first)
        high = bisect_left(self._firsts, end, low)
        high -= high > low and self._batches[high - 1].last >= end
        if high - low > 1:
            self.forget_spent_hints(self._firsts[low], self._batches[high - 1].last)
            whole, pieces = self._batches[low:high], pieces_of(self._batches[low:high], self.start_offset)
            self._batches[low:high] = pieces
            self._tally(whole[0], -1)  # only the first may extend below the start offset, and is cut there
            for piece in pieces_of(whole[:1], self.start_offset):
                self._tally(piece, 1)
            self._firsts[low:high] = [piece.first for piece in pieces]

    def remove_front(self, count: int) -> None:
        """Remove the first `count` batches."""
        for at in range(self._head, self._head + count):
            self._tally(self._batches[at], -1)
        self._head += count
        gone, least = self._head, self.limits.forgotten_batches
        if gone == len(self._batches) or (gone > least and 2 * gone > len(self._batches)):
            del self._batches[: self._head]
            del self._firsts[: self._head]
            self._head = 0

    def move_start(self, start_offset: int) -> None:
        """Raise the start offset, and remove batches wholly below it. If none is left, the window is empty, and
        end_offset becomes the next offset to fetch (PL-005, PL-123)."""
        self.start_offset = start_offset
        if self.counts_records and start_offset > self._delayed_through:
            self.counts_records, self.counting, self.delayed = False, 0, 0
        gone = 0
        for batch in self.walk():
            if batch.last >= start_offset:
                break
            gone += 1
        self.remove_front(gone)
        if self.is_empty:
            self._hints.clear()
            self.gap = None
            if gone or self.end_offset < start_offset:
                self.end_offset = start_offset

    def note_gap(self, lowest: int, window_end: int) -> None:
        """Let the gap window start at the lowest offset ≥ `lowest` that no batch covers; clear it if there is none up
        to `window_end`."""
        hole = lowest
        for batch in self.overlapping(lowest, window_end):
            if batch.first > hole:
                break
            hole = batch.last + 1
        self.gap = (hole, window_end) if hole <= window_end else None

    # Invariants.

    def check(self, now_ms: int | None = None) -> None:
        """Run `check_window` between two events, for tests and the simulator; its cost grows with the window."""
        check_window(self, self._batches[self._head :], self._firsts[self._head :], self._hints, now_ms)
