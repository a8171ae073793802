"""The naive model's state: a dictionary with one entry per record, and everything derived from it.

Written from `docs/spec/partition-leader.md` alone: it imports no product code. It is slow on purpose: every query goes
through all records again; no count, index or cursor is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
FINISHED = (ACKNOWLEDGED, ARCHIVED)
CATCH_UP_MS = 5_000
#: Delivery count, state, and the end of the delay (0: none) of one offset.
Rank = tuple[int, int, int]
#: The delivery count at which a member gave a record up, and why (PL-942).
Reason = tuple[int, str]
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Rules:
    """The group's settings at the moment of an event (PL-104, PL-1003)."""

    lock_ms: int
    limit: int
    locks_max: int
    renew: bool
    dlq: bool
    letters_max: int
    delay_max: int = 20_000
    delayed_max: int = 5_000
    initial: int = 0
    multiplier: float = 2
    longest: int = 60_000
    jitter: float = 0

    def back_off(self, count: int, chance: float) -> int:
        """Return how long a record is delayed after `count` deliveries; `chance` determines the jitter (PL-936)."""
        delay = min(self.initial * self.multiplier ** (count - 1), self.longest)
        return round(delay - delay * self.jitter * chance)

    def released(self, count: int) -> int:
        """Return the state of a record that is released after `count` deliveries (PL-107)."""
        return released(count, self.limit, self.dlq)


def released(count: int, limit: int, dlq: bool) -> int:
    """T5, T6, T7."""
    if count < limit:
        return AVAILABLE
    return ARCHIVING if dlq else ARCHIVED


@dataclass(slots=True)
class Record:
    """One record. `goal`: the state it gets when its write is durable; None if nothing is pending. `piece`: first and
    last offset of the range that was acquired together with it (PL-235); isolation (PL-240) and PL-225 use it. `until`:
    when its delay ends (PL-932), or will end if its release is pending (PL-933); 0: none. `taken_back`: the delivery
    count after its delivery was last taken back, and how many times in a row that happened (PL-941)."""

    state: int
    count: int
    piece: tuple[int, int]
    holder: str = ""
    lock_end: int = 0
    goal: int | None = None
    until: int = 0
    taken_back: tuple[int, int] = (-1, 0)

    @property
    def in_a_row(self) -> int:
        """Return how many times in a row its delivery was taken back."""
        return self.taken_back[1] if self.taken_back[0] == self.count else 0

    @property
    def shown(self) -> int:
        """Return its state, or its goal if a change is pending."""
        return self.state if self.goal is None else self.goal

    @property
    def is_free(self) -> bool:
        """Return True if it could be acquired."""
        return self.state == AVAILABLE and self.goal is None and not self.until

    @property
    def is_delayed(self) -> bool:
        """Return True if it is delayed (PL-932)."""
        return self.state == AVAILABLE and self.goal is None and bool(self.until)

    @property
    def is_finished(self) -> bool:
        """Return True if the start offset may pass it (PL-121)."""
        return self.state in FINISHED and self.goal is None

    @property
    def is_leaving(self) -> bool:
        """Return True if it is finished, or waits for its dead letter to be written (PL-915)."""
        return self.goal is None and self.state in (*FINISHED, ARCHIVING)

    def becomes(self, state: int, until: int = 0) -> None:
        """Change to a state for good, perhaps with the end of a delay; no member holds the record."""
        self.state, self.goal, self.holder, self.lock_end, self.until = state, None, "", 0, until

    def is_held_again(self) -> None:
        """Cancel the pending change (T19, PL-933)."""
        self.goal, self.until = None, 0


class Records:
    """The records that a leader has in flight. `end`: as PL-005. `gap`: PL-606. `letters`: number → offset → delivery
    count. `waited`: the highest offset that was ever delayed (PL-935). `joined`: the numbers of pieces and finished
    records when settled pieces were last joined."""

    def __init__(self, start: int = 0) -> None:
        self.all: dict[int, Record] = {}
        self.start = start
        self.end = start
        self.gap: tuple[int, int] | None = None
        self.letters: dict[int, dict[int, int]] = {}
        self.waited = -1
        self.joined = (0, 0)

    def load(self, start: int, stored: dict[int, Rank]) -> None:
        """PL-606: load the stored records, with equal neighbours as one piece. Neighbours whose delays end at different
        stored times are separate pieces."""
        self.__init__(start)  # type: ignore[misc]  # empty state
        for first, last, (count, state, _) in alike(stored):
            for offset in range(first, last + 1):
                self.all[offset] = Record(AVAILABLE if state == ACQUIRED else state, count, (first, last))
        if self.all:
            self.end = max(self.all)
            self.shrink_gap(start, self.end)

    # Queries.

    @property
    def offsets(self) -> list[int]:
        """Return all offsets in flight, ascending. Some may be below the start offset (PL-622)."""
        return sorted(self.all)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Return the ranges that were acquired together, ascending."""
        return sorted({record.piece for record in self.all.values()})

    @property
    def next_offset(self) -> int:
        """SPEO."""
        return self.end + 1 if self.all else self.end

    @property
    def in_flight(self) -> int:
        """PL-130."""
        return self.end - self.start + 1 if self.all else 0

    @property
    def open_gap(self) -> tuple[int, int] | None:
        """PL-607."""
        return self.gap if self.gap is not None and self.all and self.gap[1] == self.end else None

    @property
    def letters_out(self) -> list[int]:
        """Return the offsets of all dead letters that are not written yet."""
        return [offset for letter in self.letters.values() for offset in letter]

    def piece_at_or_before(self, offset: int) -> tuple[int, int] | None:
        """Return the piece with the highest first offset that does not exceed `offset`."""
        return max((piece for piece in self.pieces if piece[0] <= offset), default=None)

    def next_fetch(self) -> int:
        """PL-202."""
        free = [offset for offset, record in self.all.items() if record.is_free and offset >= self.start]
        gap = self.open_gap
        candidates = free + ([gap[0]] if gap is not None else [])
        return min(candidates) if candidates else self.next_offset

    def letters_full(self, rules: Rules) -> bool:
        """PL-916."""
        out = self.letters_out
        return bool(out) and len(out) >= rules.letters_max

    def room(self, rules: Rules) -> int:
        """Return how many new offsets may be acquired (PL-131, PL-915, PL-916, PL-935)."""
        out = self.letters_out
        if self.waited >= self.start:
            delayed = sum(record.is_delayed for record in self.all.values())
            if delayed >= rules.delayed_max or self.letters_full(rules):
                return 0
            return rules.locks_max - sum(not (r.is_leaving or r.is_delayed) for r in self.all.values())
        if not out:
            return rules.locks_max - self.in_flight
        if self.letters_full(rules):
            return 0
        front = min(
            (offset for offset, record in self.all.items() if offset >= self.start and not record.is_leaving),
            default=max(self.start, self.next_offset),
        )
        gap = self.open_gap
        if gap is not None:
            front = min(front, gap[0])
        return rules.locks_max - (self.next_offset - front - sum(offset >= front for offset in out))

    def can_acquire(self, rules: Rules) -> bool:
        """PL-131."""
        return self.room(rules) > 0 or self.next_fetch() != self.end + 1

    def progress(self, committed_only: bool) -> tuple[int, int]:
        """Return the start offset by PL-121 … PL-123, and delivery_complete_count by PL-125: with committed states
        only, or as if pending changes were committed."""
        gap, start, passed = self.open_gap, self.start, False
        stop = self.end + 1
        for offset in self.offsets:
            if offset < self.start:
                continue
            record = self.all[offset]
            if gap is not None and offset > gap[0]:
                stop = gap[0]
                break
            if not (record.is_finished if committed_only else record.shown in FINISHED):
                stop = offset
                break
            passed = True
        if passed:
            start = stop
        return start, self.complete_from(start)

    def complete_from(self, start: int) -> int:
        """PL-125."""
        return sum(offset >= start and record.shown in FINISHED for offset, record in self.all.items())

    # Changes.

    def waits(self, offset: int, until: int, now: int) -> None:
        """Delay an Available record until then, unless that time is past (PL-932)."""
        self.all[offset].until = until if until > now else 0
        self.waited = max(self.waited, offset)

    def advance(self) -> None:
        """PL-120."""
        start, _ = self.progress(committed_only=True)
        if start > self.start:
            self.move_start(start)

    def move_start(self, start: int) -> None:
        """Raise the start offset. A piece that is entirely below it is dropped (PL-123, 12.19)."""
        self.start = start
        gone = [offset for offset, record in self.all.items() if record.piece[1] < start]
        for offset in gone:
            del self.all[offset]
        if not self.all:
            self.gap = None
            if gone or self.end < start:
                self.end = start

    def shrink_gap(self, lowest: int, end: int) -> None:
        """PL-608: the gap starts at the first offset from `lowest` on that is in no piece; if there is none, the gap is
        closed."""
        holes = [offset for offset in range(lowest, end + 1) if offset not in self.all]
        self.gap = (holes[0], end) if holes else None

    def join_settled(self, changes: int) -> None:
        """PL-935: while records are delayed, join neighbouring pieces that hold no counted record, into one for each
        run of equal state, delivery count and end of delay. This is done once enough has changed since the last
        time."""
        pieces = self.pieces
        finished = sum(record.shown in FINISHED for record in self.all.values())
        changed = abs(len(pieces) - self.joined[0]) + abs(finished - self.joined[1])
        if self.waited < self.start or changed < max(changes, self.joined[0] // 2):
            return
        counting = {record.piece for record in self.all.values() if not (record.is_leaving or record.is_delayed)}
        settled: list[list[tuple[int, int]]] = [[]]
        for piece in pieces:
            if piece in counting:
                settled.append([])
            else:
                settled[-1].append(piece)
        for run in settled:
            if len(run) > 1:
                self.join(offset for first, last in run for offset in range(first, last + 1))
        finished = sum(record.shown in FINISHED for record in self.all.values())
        self.joined = len(self.pieces), finished

    def join(self, offsets: Iterable[int]) -> None:
        """Make one piece of each run of equal records; drop offsets below the start offset."""
        ranks: dict[int, tuple[int, int, int]] = {}
        for offset in offsets:
            if offset < self.start:
                del self.all[offset]
            else:
                record = self.all[offset]
                ranks[offset] = (record.state, record.count, record.until)
        for first, last, _ in alike(ranks):
            for offset in range(first, last + 1):
                self.all[offset].piece = (first, last)

    def take_away(self, first: int, last: int) -> list[int]:
        """Archive the records at these offsets that are Available, or released but not written yet: the log has lost
        them (T16, T17). Return their offsets."""
        gone = [offset for offset, record in self.all.items() if first <= offset <= last and record.shown == AVAILABLE]
        for offset in gone:
            self.all[offset].becomes(ARCHIVED)
        return gone


def alike(values: dict[int, V]) -> list[tuple[int, int, V]]:
    """Return runs of neighbours with equal values: (first, last, value)."""
    found: list[tuple[int, int, V]] = []
    for offset in sorted(values):
        if found and found[-1][1] + 1 == offset and found[-1][2] == values[offset]:
            found[-1] = (found[-1][0], offset, values[offset])
        else:
            found.append((offset, offset, values[offset]))
    return found
