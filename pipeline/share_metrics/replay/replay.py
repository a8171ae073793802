"""Replays the records of one share-partition and counts what happened to its offsets (PM-32, PM-47…PM-51, PM-63). Pure.

It uses the share coordinator's own combine function, so that a replay gives the same state as there. Acquired is never
persisted, and batches below the start offset are dropped, so the counts are lower bounds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kip932.ids import STATE_ACKNOWLEDGED, STATE_AVAILABLE, TERMINAL_STATES
from kip932.state_batches import ArchivedRange, StateBatch, clip, combine, merge_into
from share_metrics.replay.append_times import AppendTimes, Spans
from share_metrics.replay.poison import Poison, Suspects

#: How many delivery counts the histogram distinguishes; the last one includes all higher counts.
HISTOGRAM_MAX: Final = 10


class Event(NamedTuple):
    """One record: type, event time (µs), number of gaps of its stream so far, and the fields that a replay needs.

    Only snapshots have a state epoch. `names_archived`: the write names all records that it archives, in `archived`,
    and the group's delivery limit where that matters.
    """

    record_type: str
    time_us: int
    losses: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]
    state_epoch: int | None = None
    names_archived: bool = False
    delivery_limit: int | None = None
    archived: tuple[ArchivedRange, ...] = ()
    hwm: int | None = None


class Change(NamedTuple):
    """Offsets `first`…`last` whose state or delivery count changed. `old`: the previous pair; None if unknown."""

    first: int
    last: int
    old: tuple[int, int] | None
    delivery_state: int
    delivery_count: int


@dataclass(slots=True)
class Tally:
    """The counts of one window.

    `waits`: pairs of the end of a window (µs, ascending) and the number of records whose delay ends in that window;
    only records that are still delayed when the tally's window ends are counted. None when unknown.
    """

    released_lb: int = 0
    accepted_lb: int = 0
    archived_lb: int = 0
    in_flight_batches: int | None = None
    in_flight_width_lb: int | None = None
    incomplete: bool = False
    waits: tuple[tuple[int, int], ...] | None = None
    histogram: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_MAX)
    latencies_ms: list[tuple[int, int]] = field(default_factory=list)
    ends: Spans = field(default_factory=Spans)

    def percentile_ms(self, share: float) -> int | None:
        """The ms from first release to a terminal state that `share` (0 to 1) of the offsets did not exceed."""
        total = sum(count for _, count in self.latencies_ms)
        reached = 0
        self.latencies_ms.sort()
        for latency, count in self.latencies_ms:
            reached += count
            if reached >= share * total:
                return latency
        return None


class Waiting(NamedTuple):
    """Offsets that were released and not finished since."""

    first: int
    last: int
    since_us: int


class Replay:
    """The state of one share-partition during a replay. Call `apply` for its records in id order.

    `_batches` and `_waiting` are sorted and do not overlap, so a record's cost depends on the batches it holds, not on
    those it leaves unchanged.
    """

    def __init__(self, window_us: int, delivery_limit: int = 5) -> None:
        self._window_us = window_us
        self._known = False
        self._losses: int | None = None
        self._state_epoch: int | None = None
        self._start = 0
        self._batches: list[StateBatch] = []
        self._waiting: list[Waiting] = []
        self._appended = AppendTimes()
        self._suspects = Suspects(delivery_limit)
        self._window: int | None = None
        self._tally = Tally()
        self._windows: dict[int, Tally] = {}

    @property
    def windows(self) -> dict[int, Tally]:
        """The counts by the start of their window (µs), up to the last record."""
        self._close()
        return self._windows

    def apply(self, event: Event) -> None:
        """Take one record. Nothing is counted before the first snapshot, or between a gap and the next snapshot
        (PM-11)."""
        window = event.time_us // self._window_us
        if window != self._window:
            self._close()
            self._window = window
            self._tally = self._windows.setdefault(window * self._window_us, Tally())
        if event.losses != self._losses:
            if self._losses is not None:
                self._forget()
                self._tally.incomplete = True
            self._losses = event.losses
        if event.record_type != "tombstone":
            self._suspects.take_write(event.names_archived, event.delivery_limit, event.archived, event.time_us)
        self._appended.seen(event.hwm, event.time_us)
        if event.record_type == "tombstone":
            self._suspects.forget()
            self._forget()
        elif event.record_type == "snapshot":
            self._snapshot(event)
        elif self._known:
            self._update(event)
        else:
            self._tally.incomplete = True

    def poison(self) -> list[Poison]:
        """The offsets that failed or have one delivery left, newest first (PM-48)."""
        return self._suspects.newest()

    def _close(self) -> None:
        """Note the records that are delayed at the end of the current window. Only this step has to go through all
        batches."""
        if self._window is None:
            return
        end_us = (self._window + 1) * self._window_us
        waits: dict[int, int] = {}
        for first, last, _, _, until_ms in self._batches:
            if until_ms * 1000 > end_us:
                until_us = -(-until_ms * 1000 // self._window_us) * self._window_us
                waits[until_us] = waits.get(until_us, 0) + last - first + 1
        self._tally.waits = tuple(sorted(waits.items())) if self._known else None

    def _snapshot(self, event: Event) -> None:
        """Replace the whole state, and count the changes from the previous state.

        A new state epoch is a reset: offsets that it skips or repeats have not become final (PM-59).
        """
        if event.state_epoch is not None:
            if self._state_epoch not in {None, event.state_epoch}:
                self._suspects.forget()
                self._forget()
            self._state_epoch = event.state_epoch
        start = self._start if event.start_offset is None else event.start_offset
        after = combine((), event.batches, start)
        self._take(start, after, after if self._known else (), event.time_us)
        self._known = True

    def _update(self, event: Event) -> None:
        """Apply an update. It can change only the offsets that it names and those that the start offset passes."""
        start = self._start if event.start_offset is None else event.start_offset
        news = combine((), event.batches, start)
        after = merge_into(self._batches, news, start)
        named = clip(after, news[0].first_offset, news[-1].last_offset) if news else ()
        self._take(start, after, named, event.time_us)

    def _take(self, start: int, after: list[StateBatch], news: Sequence[StateBatch], now_us: int) -> None:
        if start >= self._start:
            self._pass(start, now_us)
            for change in changes(self._batches, news):
                self._count(change, now_us, self._tally)
        else:  # a reset: released offsets are no longer tracked
            self._waiting.clear()
        if self._waiting and self._waiting[0].first < start:  # below the start offset, so final in any case
            self._finish(self._waiting[0].first, start - 1, now_us, self._tally)
        self._suspects.passed(start)
        self._start, self._batches = start, after
        self._tally.in_flight_batches = len(after)
        self._tally.in_flight_width_lb = after[-1].last_offset + 1 - start if after else 0

    def _pass(self, start: int, now_us: int) -> None:
        """End the offsets that the start offset passes now, unless they had already ended."""
        if self._known and start > self._start:
            at = self._start
            for first, last, state, _, _ in self._batches:
                if first >= start:
                    break
                if state in TERMINAL_STATES:
                    if at < first:
                        self._appended.took(at, first - 1, now_us, self._tally.ends)
                    at = max(at, last + 1)
            if at < start:
                self._appended.took(at, start - 1, now_us, self._tally.ends)
        self._appended.passed(start)

    def _count(self, change: Change, now_us: int, tally: Tally) -> None:
        offsets = change.last - change.first + 1
        if change.delivery_state == STATE_AVAILABLE and change.delivery_count > 0:
            tally.released_lb += offsets
            self._wait(change.first, change.last, now_us)
        elif change.delivery_state in TERMINAL_STATES and (
            change.old is None or change.old[0] != change.delivery_state
        ):
            if change.delivery_state == STATE_ACKNOWLEDGED:
                tally.accepted_lb += offsets
            else:
                tally.archived_lb += offsets
            tally.histogram[min(max(change.delivery_count, 1), HISTOGRAM_MAX) - 1] += offsets
            self._finish(change.first, change.last, now_us, tally)
            if change.old is None or change.old[0] not in TERMINAL_STATES:
                self._appended.took(change.first, change.last, now_us, tally.ends)
        self._suspects.change(*change[:2], *change[3:], now_us)

    def _wait(self, first: int, last: int, now_us: int) -> None:
        """Note the offsets as released now, except those already noted, since latency is measured from the first
        release."""
        begin, end = _overlapping(self._waiting, first, last)
        found: list[Waiting] = []
        for one in self._waiting[begin:end]:
            if one.first > first:
                found.append(Waiting(first, one.first - 1, now_us))
            found.append(one)
            first = one.last + 1
        if first <= last:
            found.append(Waiting(first, last, now_us))
        self._waiting[begin:end] = found

    def _finish(self, first: int, last: int, now_us: int, tally: Tally) -> None:
        begin, end = _overlapping(self._waiting, first, last)
        kept: list[Waiting] = []
        for one in self._waiting[begin:end]:
            low, high = max(one.first, first), min(one.last, last)
            tally.latencies_ms.append(((now_us - one.since_us) // 1000, high - low + 1))
            if one.first < low:
                kept.append(one._replace(last=low - 1))
            if one.last > high:
                kept.append(one._replace(first=high + 1))
        self._waiting[begin:end] = kept

    def _forget(self) -> None:
        self._known = False
        self._state_epoch = None
        self._batches = []
        self._waiting.clear()


def changes(old: Sequence[StateBatch], new: Sequence[StateBatch]) -> Iterator[Change]:
    """The changes from `old` to `new`, both combined lists. State 0 with count 0 is filler, not a change."""
    index = bisect_left(old, new[0].first_offset, key=_last_offset) if new else 0
    for first, last, state, count, _ in new:
        at = first
        while index < len(old) and old[index].first_offset <= last:
            begin, end, state_before, count_before, _ = old[index]
            if at < begin:
                if state or count:
                    yield Change(at, begin - 1, None, state, count)
                at = begin
            if at <= end and (state_before != state or count_before != count):
                yield Change(at, min(end, last), (state_before, count_before), state, count)
            at = max(at, end + 1)
            if end > last:
                break  # it extends into the next batch of `new`
            index += 1
        if at <= last and (state or count):
            yield Change(at, last, None, state, count)


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _first(one: Waiting) -> int:
    return one.first


def _last(one: Waiting) -> int:
    return one.last


def _overlapping(waiting: Sequence[Waiting], first: int, last: int) -> tuple[int, int]:
    """The start and end index of the items that overlap the offsets `first`…`last`."""
    begin = bisect_left(waiting, first, key=_last)
    return begin, bisect_right(waiting, last, lo=begin, key=_first)
