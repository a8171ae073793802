"""One acquire pass over a log read: which offsets a fetch gets (PL-220 … PL-237), and which gaps it resolves (PL-608).

Owns the walk over the cached batches that a read overlaps, and creates new batches from log data. While no gap window
is active, it visits only batches with Available records (P-3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from kip932.ids import ACQUIRE_RECORD_LIMIT, BATCH_RECORDS_MAX, STATE_ACQUIRED, STATE_AVAILABLE
from partition_leader.share_partition.core.advance import advance
from partition_leader.share_partition.core.bad_record_isolation import AcquisitionPass, acquire_subset, is_throttled
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.effects import AcquiredRange
from partition_leader.share_partition.core.events import Acquire, BatchHeader
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.removal import remove_unheld, take_away
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.transitions import ABORTED, ACQUIRE
from partition_leader.share_partition.core.visibility import aborted_spans, without

_DELIVERED_ONCE: Final = 1


class AcquirePass:
    """The state of one pass. `run` returns the ranges; afterwards `archived` holds the spans that T17 and T18 archived,
    which no write has stored yet (PL-621)."""

    __slots__ = (
        "_batch_size",
        "_cap",
        "_complete",
        "_event",
        "_record_limit",
        "_room",
        "_window",
        "archived",
        "pass_",
        "ranges",
    )

    def __init__(self, window: Window, event: Acquire, now_ms: int, room: int | None = None) -> None:
        """`room`: how many new offsets may be acquired (PL-915); None means as many as the record-lock limit leaves."""
        self._window = window
        self._event = event
        self._room = event.settings.max_record_locks - window.in_flight if room is None else room
        self._record_limit = event.mode == ACQUIRE_RECORD_LIMIT
        self._batch_size = max(1, event.batch_size)  # PL-423
        self._cap = 0
        self._complete = True
        self.archived: list[Span] = []
        self.ranges: list[AcquiredRange] = []
        first_read = event.batches[0].base_offset if event.batches else 0
        settings = event.settings
        self.pass_ = AcquisitionPass(
            event.member_id,
            now_ms + settings.lock_ms,
            first_read,
            event.last_read_offset,
            settings.delivery_count_limit,
        )

    def run(self) -> tuple[AcquiredRange, ...]:
        """Acquire; return ascending ranges that belong to the member until their lock ends."""
        event, window = self._event, self._window
        if event.max_records <= 0 or not event.batches or event.last_read_offset < window.start_offset:
            return ()
        cap = min(event.max_records, self._room)
        if cap <= 0:  # PL-222: no room for new offsets, but released records may be acquired again
            if window.is_empty or event.fetch_offset > window.end_offset:
                return ()
            cap = min(event.max_records, window.end_offset - event.fetch_offset + 1)
            self.pass_ = self.pass_._replace(last_acquirable=min(event.last_read_offset, window.end_offset))
        self._cap = cap
        self._archive_compacted()
        base = self._base()
        if base > self.pass_.last_acquirable:
            self._resolve_gaps()
            advance(window)
            return ()
        self._collect(base)
        self._resolve_gaps()
        return self._visible()

    def _archive_compacted(self) -> None:
        """Archive the Available records that the log read skipped, because the log no longer has them (T17, PL-226)."""
        low, high = self._event.fetch_offset, self.pass_.first_read - 1
        if low <= high:
            self.archived += remove_unheld(self._window, low, high)

    def _base(self) -> int:
        """Return the offset where the pass starts (PL-223)."""
        window, base = self._window, self.pass_.first_read
        found = window.floor(base)
        if found is not None and found.last >= base:
            return found.first
        return max(base, window.start_offset)

    def _collect(self, base: int) -> None:
        window, now = self._window, self.pass_
        low = min(now.first_read, base)
        last_overlap = window.last_starting_in(low, now.last_acquirable)
        if last_overlap is None:  # PL-224
            self._acquire_new(base, now.last_acquirable, self._cap)
            return
        gap = window.open_gap
        if gap is None:
            batches = window.available_in(low, now.last_acquirable)
        else:
            batches = window.starting_in(low, now.last_acquirable)
        acquired, stopped = self._redeliver(batches, base if gap is not None else None)
        if stopped or acquired >= self._cap:
            self._complete = False
        elif last_overlap.last < now.last_acquirable:
            self._acquire_new(last_overlap.last + 1, now.last_acquirable, self._cap - acquired)
        window.forget_spent_hints(low, now.last_acquirable)

    def _redeliver(self, batches: Sequence[InFlightBatch], cursor: int | None) -> tuple[int, bool]:
        """Acquire from the overlapping batches (PL-225); `cursor` walks the holes of an active gap window. Returns how
        many offsets were acquired, and whether isolation stopped the pass."""
        acquired = 0
        for batch in batches:
            if acquired >= self._cap:
                break
            if cursor is not None:
                if cursor < batch.first:
                    acquired += self._acquire_new(cursor, batch.first - 1, self._cap - acquired)
                    if acquired >= self._cap:
                        break
                cursor = batch.last + 1
            throttled = is_throttled(batch, self.pass_)
            if throttled and (acquired or self._event.beside):
                return acquired, True
            got = self._acquire_cached(batch, self._cap - acquired, throttled)
            acquired += got
            if throttled and got:
                return acquired, True
        return acquired, False

    def _acquire_cached(self, batch: InFlightBatch, room: int, throttled: bool) -> int:
        """Acquire one cached batch, in whole or in part (PL-225.3 … 5); return how many offsets were acquired."""
        now, window = self.pass_, self._window
        full = now.first_read <= batch.first and batch.last <= now.last_acquirable
        size = len(batch)
        if not full or batch.codes is not None or throttled or (self._record_limit and size > room):
            if batch.codes is None and not batch.available:
                return 0
            before = batch.available
            self.ranges += acquire_subset(window, batch, now, room if self._record_limit else None)
            return before - batch.available
        if not batch.available:
            return 0
        count = batch.count + 1
        window.recode(batch, batch.first, batch.last, ACQUIRE)
        batch.set_counts(batch.first, batch.last, count)
        batch.hold(batch.first, batch.last, now.member, now.deadline)
        window.lock(batch.first, batch.last, now.deadline)
        self.ranges.append(AcquiredRange(batch.first, batch.last, count))
        return size

    def _acquire_new(self, first: int, range_last: int, cap: int) -> int:
        """Cache offsets never fetched before (PL-230 … PL-236); return how many were acquired."""
        window, log = self._window, self._event.batches
        if window.is_empty and window.end_offset > first:
            first = window.end_offset
        if first > range_last or cap <= 0:
            return 0
        last = range_last
        if cap < range_last - first + 1:
            last = min(range_last, _end_of_log_batch(log, first + cap - 1), first + max(cap, BATCH_RECORDS_MAX) - 1)
            self._complete = False
        was_first = window.is_empty or window.first_offset > first
        if self._record_limit:
            got = self._cache_limited(first, last, cap)
        else:
            got = last - first + 1
            for low, high in _aligned(log, first, last, self._batch_size):
                self._cache(low, high)
        if was_first:
            window.start_offset = max(window.start_offset, first)
        window.end_offset = max(window.end_offset, last)
        return got

    def _cache(self, first: int, last: int) -> None:
        now = self.pass_
        self._window.add(
            InFlightBatch(first, last, STATE_ACQUIRED, _DELIVERED_ONCE, member=now.member, deadline=now.deadline)
        )
        self._window.lock(first, last, now.deadline)
        self.ranges.append(AcquiredRange(first, last, _DELIVERED_ONCE))

    def _cache_limited(self, first: int, last: int, cap: int) -> int:
        """Cache whole log batches as one batch, from which the fetch gets at most `cap` offsets (PL-236)."""
        if last - first + 1 <= cap:
            self._cache(first, last)
            return last - first + 1
        now, cut = self.pass_, first + cap
        batch = InFlightBatch(first, last, STATE_AVAILABLE, 0)
        batch.recode(first, cut - 1, ACQUIRE)
        batch.set_counts(first, cut - 1, _DELIVERED_ONCE)
        batch.hold(first, cut - 1, now.member, now.deadline)
        self._window.add(batch)
        self._window.lock(first, cut - 1, now.deadline)
        self.ranges.append(AcquiredRange(first, cut - 1, _DELIVERED_ONCE))
        return cap

    def _resolve_gaps(self) -> None:
        """Resolve the holes that this pass walked over: their records are now acquired, or are not in the log (PL-607,
        PL-608)."""
        window = self._window
        gap = window.gap
        if gap is None:
            return
        if window.open_gap is None:
            window.gap = None
            return
        reached = self.pass_.last_acquirable
        if not self._complete:
            reached = min(reached, self.ranges[-1].last_offset) if self.ranges else self._event.fetch_offset - 1
        if self._event.fetch_offset <= gap[0] <= reached:
            window.note_gap(reached + 1, gap[1])
        else:
            window.note_gap(gap[0], gap[1])

    def _visible(self) -> tuple[AcquiredRange, ...]:
        """Archive records of aborted transactions, and leave them out of the response (PL-803)."""
        event = self._event
        if not event.read_committed:
            return tuple(self.ranges)
        hidden = aborted_spans(event.batches, event.aborted)
        visible = without(self.ranges, hidden)
        if hidden:
            for first, last in _intersections(self.ranges, hidden):
                for batch in list(self._window.overlapping(first, last)):
                    span = max(first, batch.first), min(last, batch.last)
                    self.archived += take_away(self._window, batch, span, ABORTED)
        return visible


def _intersections(ranges: Sequence[AcquiredRange], spans: Sequence[Span]) -> list[Span]:
    result: list[Span] = []
    at = 0
    for first, last, _ in ranges:
        while at < len(spans) and spans[at][1] < first:
            at += 1
        cut = at
        while cut < len(spans) and spans[cut][0] <= last:
            result.append((max(first, spans[cut][0]), min(last, spans[cut][1])))
            cut += 1
    return result


def _end_of_log_batch(log: Sequence[BatchHeader], offset: int) -> int:
    """Return the last offset of the log batch that contains `offset`, or `offset` itself in a hole (PL-230)."""
    at = bisect_right(log, offset, key=lambda batch: batch.base_offset) - 1
    return max(offset, log[at].last_offset) if at >= 0 else offset


def _aligned(log: Sequence[BatchHeader], first: int, last: int, batch_size: int) -> list[Span]:
    """Cut `first`…`last` at log batch boundaries into parts of at least `batch_size` (PL-235)."""
    if last - first + 1 <= batch_size:
        return [(first, last)]
    result: list[Span] = []
    start = first
    for at in range(bisect_right(log, first, key=lambda batch: batch.base_offset), len(log)):
        base = log[at].base_offset
        if base > last:
            break
        if base - start >= batch_size:
            result.append((start, base - 1))
            start = base
    result.append((start, last))
    return result
