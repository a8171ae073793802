"""Phase 2 of the dead-letter flow: Archiving records that were sent as dead letters, and the room they leave (PL-904,
T15).

Owns the dead letters of one share-partition that are being written or wait for a retry (PL-907), and how many new
offsets may be acquired meanwhile (PL-915, PL-916). Whether a dead letter is retried is decided by `DeadLetterPost`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kip932.failures import Failure
from kip932.ids import OFFSET_MAX, SHARE_PARTITION_BATCHES_MAX, STATE_ARCHIVING
from partition_leader.share_partition.core.effects import (
    DLQ_CLIENT_REJECT,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    AcquiredRange,
    DeadLetter,
)
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.limits import LIMITS
from partition_leader.share_partition.core.pieces import records_of
from partition_leader.share_partition.core.reasons import parts
from partition_leader.share_partition.core.spans import Span
from partition_leader.share_partition.core.transitions import DLQ_DONE, LEAVING_CODES
from shard_runtime.config.group_config import GroupConfig

#: The limit on pieces of finished records before the first unfinished one, equal to the limit on stored state batches.
PIECES_MAX: Final = SHARE_PARTITION_BATCHES_MAX


class DeadLetters:
    """Numbers the dead letters that are sent, and archives their records when they are done. `waiting`: the number of
    records with outstanding dead letters. `_front`: the lowest offset known to be neither finished nor Archiving. It
    only rises, so the search visits each batch once. `_passed`: how many outstanding dead letters are below it.
    `_lowest_ahead`: a lower bound for the offsets of the outstanding ones from `_front` on."""

    __slots__ = ("_front", "_lowest_ahead", "_next_id", "_out", "_passed", "_squeeze_at", "_squeezed", "waiting")

    def __init__(self, squeeze_at: int = LIMITS.merged_batches) -> None:
        self._next_id = 1
        self._out: dict[int, tuple[AcquiredRange, ...]] = {}
        self.waiting = 0
        self._front = 0
        self._passed = 0
        self._lowest_ahead = OFFSET_MAX
        self._squeezed = 0
        self._squeeze_at = squeeze_at

    def __bool__(self) -> bool:
        return bool(self._out)

    def send(
        self, window: Window, causes: Iterable[tuple[Span, str]], failures: Sequence[Failure] = ()
    ) -> list[DeadLetter]:
        """Return one effect per cause, with those records of the spans that are Archiving and not pending. Records
        below the start offset are not stored as Archiving, and get no dead letter (PL-905). `failures`: all reasons of
        the share-partition."""
        by_cause: dict[str, list[AcquiredRange]] = {}
        for span, cause in causes:
            first, last = max(span[0], window.start_offset), span[1]
            for batch in window.overlapping(first, last):
                for low, high, code, count in batch.runs(max(first, batch.first), min(last, batch.last)):
                    if code == STATE_ARCHIVING:
                        by_cause.setdefault(cause, []).append(AcquiredRange(low, high, count))
        result: list[DeadLetter] = []
        for cause, ranges in by_cause.items():
            ranges.sort()
            effect = DeadLetter(self._next_id, tuple(ranges), cause, _reasons_of(ranges, failures))
            self._out[self._next_id] = effect.ranges
            self._next_id += 1
            for found in effect.ranges:
                self._count(found)
                self.waiting += found.last_offset - found.first_offset + 1
            result.append(effect)
        return result

    def finish(self, window: Window, dead_letter_id: int, spans: Sequence[Span] | None = None) -> list[Span]:
        """Archive these ascending spans of the dead letters sent under this id (T15); None means all of them. Returns
        the archived spans; none for an unknown id."""
        done = self._take(dead_letter_id, spans)
        for first, last in done:
            for batch in window.overlapping(first, last):
                window.recode(batch, max(first, batch.first), min(last, batch.last), DLQ_DONE)
        return done

    def postpone(self, dead_letter_id: int, spans: Sequence[Span] | None = None) -> None:
        """Stop waiting for these dead letters: their records stay Archiving, and a successor sends them again
        (PL-921)."""
        self._take(dead_letter_id, spans)

    def forget(self) -> None:
        """Stop waiting for all dead letters, because the share-partition stopped."""
        self._out.clear()
        self.waiting = self._passed = 0

    def room(self, window: Window, settings: GroupConfig) -> int:
        """Return how many new offsets may be acquired; 0 or less for none (PL-131, PL-915, PL-916)."""
        if not self.waiting:
            return settings.max_record_locks - window.in_flight
        self._move_front(window)
        if self.is_full(window, settings):
            return 0
        return settings.max_record_locks - (window.next_offset - self._front - (self.waiting - self._passed))

    def is_full(self, window: Window, settings: GroupConfig) -> bool:
        """Return whether dead letters keep new offsets from being acquired (PL-916)."""
        if not self.waiting:
            return False
        return self.waiting >= settings.dead_letters_max or window.batches_before(self._front) >= PIECES_MAX

    # Helpers.

    def _take(self, dead_letter_id: int, spans: Sequence[Span] | None) -> list[Span]:
        ranges = self._out.pop(dead_letter_id, ())
        taken: list[Span] = []
        left: list[AcquiredRange] = []
        for first, last, count in ranges:
            at = first
            for low, high in ((first, last),) if spans is None else spans:
                if high < at or low > last:
                    continue
                if at < low:
                    left.append(AcquiredRange(at, low - 1, count))
                taken.append((max(at, low), min(high, last)))
                at = min(high, last) + 1
            if at <= last:
                left.append(AcquiredRange(at, last, count))
        if left:
            self._out[dead_letter_id] = tuple(left)
        for first, last in taken:
            self.waiting -= last - first + 1
            self._passed -= max(0, min(last + 1, self._front) - first)
        return taken

    def _move_front(self, window: Window) -> None:
        front = _first_unfinished(window, max(self._front, window.start_offset))
        if front <= self._front:
            return
        self._front = front
        if self._lowest_ahead < front:
            self._passed, self._lowest_ahead = 0, OFFSET_MAX
            for ranges in self._out.values():
                for found in ranges:
                    self._count(found)
        if window.batches_before(front) - window.batches_before(self._squeezed) >= self._squeeze_at:
            window.merge_settled(self._squeezed - 1, front)  # from the last piece on, which may grow
            self._squeezed = front

    def _count(self, found: AcquiredRange) -> None:
        """Include a range of dead letters in `_passed` and `_lowest_ahead`."""
        first, last, front = found.first_offset, found.last_offset, self._front
        self._passed += max(0, min(last + 1, front) - first)
        if last >= front:
            self._lowest_ahead = min(self._lowest_ahead, max(first, front))


def _reasons_of(ranges: Iterable[AcquiredRange], failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Return the reasons of these records, cut at the bounds of their ranges."""
    if not failures:
        return ()
    return tuple(part for first, last, _ in ranges for part in parts(first, last, failures) if part.reason)


def stored_letters(window: Window, settings: GroupConfig) -> list[tuple[Span, str]]:
    """Return the records loaded as Archiving, with the cause that follows from their delivery count (PL-611,
    PL-910)."""
    return [
        (
            (first, last),
            DLQ_DELIVERY_COUNT_EXCEEDED if count >= settings.delivery_count_limit else DLQ_CLIENT_REJECT,
        )
        for first, last, state, count, _ in records_of(window.walk(), window.start_offset)
        if state == STATE_ARCHIVING
    ]


def _first_unfinished(window: Window, offset: int) -> int:
    """Return the first offset from `offset` on that is neither finished nor Archiving, or that the stored state does
    not cover (PL-606); if there is none, the first offset never fetched."""
    gap = window.open_gap
    for batch in window.overlapping(offset, window.end_offset):
        if gap is not None and gap[0] < batch.first:
            return max(offset, gap[0])
        found = batch.first_other(max(offset, batch.first), LEAVING_CODES)
        if found is not None:
            return found
    return max(offset, window.next_offset)
