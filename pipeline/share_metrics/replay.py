"""Replays the records of one share-partition and counts what happened to its offsets (PM-32, PM-47…PM-51, PM-63). Pure.

With the share coordinator's own combine function, so that a replayed log means the same here. Acquired is never
persisted, and batches below the start offset are dropped: what is counted here are lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE, TERMINAL_STATES
from kip932.state_batches import StateBatch, clip, combine, merge_into

#: Delivery counts that the histogram tells apart; the last stands for itself and all above.
HISTOGRAM_MAX: Final = 10
POISON_MAX: Final = 100


class Event(NamedTuple):
    """One record: type, event time (µs), gaps of its stream so far, and the persisted fields that a replay needs."""

    record_type: str
    time_us: int
    losses: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]


class Change(NamedTuple):
    """Offsets `first`…`last` whose state or delivery count is not what it was; `old` is None where nothing was said."""

    first: int
    last: int
    old: tuple[int, int] | None
    delivery_state: int
    delivery_count: int


@dataclass(slots=True)
class Tally:
    """What happened in one window."""

    released_lb: int = 0
    accepted_lb: int = 0
    archived_lb: int = 0
    in_flight_batches: int | None = None
    in_flight_width_lb: int | None = None
    incomplete: bool = False
    histogram: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_MAX)
    latencies_ms: list[tuple[int, int]] = field(default_factory=list)

    def percentile_ms(self, share: float) -> int | None:
        """Milliseconds from first release to the end, which `share` of the offsets seen did not exceed."""
        total = sum(count for _, count in self.latencies_ms)
        reached = 0
        for latency, count in sorted(self.latencies_ms):
            reached += count
            if reached >= share * total:
                return latency
        return None


class Poison(NamedTuple):
    """An offset that was delivered too often: state and count at the end, when it was first and last seen so."""

    offset: int
    delivery_state: int
    delivery_count: int
    first_seen_us: int
    last_seen_us: int
    times_released: int


class Waiting(NamedTuple):
    """Offsets released and not finished since."""

    first: int
    last: int
    since_us: int


class Replay:
    """The state of one share-partition as its records come by. `apply` in the order of ids."""

    def __init__(self, window_us: int, delivery_limit: int = 5) -> None:
        self._window_us = window_us
        self._limit = delivery_limit
        self._known = False
        self._losses: int | None = None
        self._start = 0
        self._batches: list[StateBatch] = []
        self._waiting: list[Waiting] = []
        self._suspects: dict[int, Poison] = {}
        self.windows: dict[int, Tally] = {}

    def apply(self, event: Event) -> None:
        """One record. Nothing is counted before a key's first snapshot, nor between a gap and the next one (PM-11)."""
        tally = self.windows.setdefault(event.time_us // self._window_us * self._window_us, Tally())
        if self._losses is not None and event.losses != self._losses:
            self._forget()
            tally.incomplete = True
        self._losses = event.losses
        if event.record_type == "tombstone":
            self._forget()
            return
        if event.record_type == "snapshot":
            self._take(event, combine((), event.batches), tally, counts=self._known)
            self._known = True
        elif self._known:
            start = self._start if event.start_offset is None else event.start_offset
            self._take(event, merge_into(self._batches, event.batches, start), tally, counts=True)
        else:
            tally.incomplete = True

    def poison(self) -> list[Poison]:
        """Candidates, newest first (PM-48)."""
        found = sorted(self._suspects.values(), key=lambda one: (-one.last_seen_us, -one.offset))
        return found[:POISON_MAX]

    def _take(self, event: Event, after: list[StateBatch], tally: Tally, *, counts: bool) -> None:
        start = self._start if event.start_offset is None else event.start_offset
        if counts and start >= self._start:
            for change in changes(self._batches, _from(after, start)):
                self._count(change, event.time_us, tally)
        elif start < self._start:  # a reset: what was waited for is waited for no more
            self._waiting.clear()
        self._finish_below(start, event.time_us, tally)
        self._start, self._batches = start, _from(after, start)
        tally.in_flight_batches = len(self._batches)
        tally.in_flight_width_lb = max((batch.last_offset + 1 for batch in self._batches), default=start) - start

    def _count(self, change: Change, now_us: int, tally: Tally) -> None:
        offsets = change.last - change.first + 1
        if change.delivery_state == STATE_AVAILABLE and change.delivery_count > 0:
            tally.released_lb += offsets
            self._waiting += _uncovered(change, self._waiting, now_us)
        elif change.delivery_state in TERMINAL_STATES and (
            change.old is None or change.old[0] != change.delivery_state
        ):
            if change.delivery_state == STATE_ACKNOWLEDGED:
                tally.accepted_lb += offsets
            else:
                tally.archived_lb += offsets
            tally.histogram[min(max(change.delivery_count, 1), HISTOGRAM_MAX) - 1] += offsets
            self._finish(change.first, change.last, now_us, tally)
        self._suspect(change, now_us)

    def _suspect(self, change: Change, now_us: int) -> None:
        late = {STATE_AVAILABLE: self._limit - 1, STATE_ARCHIVED: self._limit, STATE_ARCHIVING: 0}.get(
            change.delivery_state
        )
        if late is None or change.delivery_count < late:
            return
        for offset in range(max(change.first, change.last - POISON_MAX + 1), change.last + 1):
            known = self._suspects.pop(offset, None)
            released = (known.times_released if known else 0) + (change.delivery_state == STATE_AVAILABLE)
            first_seen = known.first_seen_us if known else now_us
            self._suspects[offset] = Poison(
                offset, change.delivery_state, change.delivery_count, first_seen, now_us, released
            )
        while len(self._suspects) > 2 * POISON_MAX:  # the oldest was put in first
            del self._suspects[next(iter(self._suspects))]

    def _finish(self, first: int, last: int, now_us: int, tally: Tally) -> None:
        kept: list[Waiting] = []
        for one in self._waiting:
            low, high = max(one.first, first), min(one.last, last)
            if low > high:
                kept.append(one)
                continue
            tally.latencies_ms.append(((now_us - one.since_us) // 1000, high - low + 1))
            if one.first < low:
                kept.append(one._replace(last=low - 1))
            if one.last > high:
                kept.append(one._replace(first=high + 1))
        self._waiting = kept

    def _finish_below(self, start: int, now_us: int, tally: Tally) -> None:
        """The start offset has passed what lies below it: that is final, whatever the batches said."""
        below = [one for one in self._waiting if one.first < start]
        if below:
            self._finish(min(one.first for one in below), start - 1, now_us, tally)

    def _forget(self) -> None:
        self._known = False
        self._batches = []
        self._waiting.clear()


def changes(old: Sequence[StateBatch], new: Iterable[StateBatch]) -> Iterator[Change]:
    """What `new` says otherwise than `old`; both are combined lists. Filler, state 0 with count 0, is no change."""
    for batch in new:
        at = batch.first_offset
        for part in [*clip(old, batch.first_offset, batch.last_offset), None]:
            end = batch.last_offset if part is None else part.first_offset - 1
            if at <= end and (batch.delivery_state or batch.delivery_count):
                yield Change(at, end, None, batch.delivery_state, batch.delivery_count)
            if part is None:
                break
            told = (part.delivery_state, part.delivery_count)
            if told != (batch.delivery_state, batch.delivery_count):
                yield Change(part.first_offset, part.last_offset, told, batch.delivery_state, batch.delivery_count)
            at = part.last_offset + 1


def _from(batches: Iterable[StateBatch], start: int) -> list[StateBatch]:
    return combine((), batches, start)


def _uncovered(change: Change, waiting: Iterable[Waiting], now_us: int) -> list[Waiting]:
    """The part of a change that nobody waits for yet: the first release counts."""
    at = change.first
    found: list[Waiting] = []
    for one in sorted(waiting):
        if one.last < at or one.first > change.last:
            continue
        if one.first > at:
            found.append(Waiting(at, one.first - 1, now_us))
        at = one.last + 1
    if at <= change.last:
        found.append(Waiting(at, change.last, now_us))
    return found
