"""Keeps the unwritten dead letters of one share-partition: which are written next, and when (PL-907, PL-912).

They are kept as stretches of offsets, so that a rejected range costs one entry, however long it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import merge
from typing import Final

from partition_leader.dead_letters.core.destination import Failure, Reason
from partition_leader.share_partition.core.effects import DeadLetter
from partition_leader.share_partition.core.reasons import parts

ROUND_LETTERS_MAX: Final = 500
BACKOFF_MS: Final = 1_000
BACKOFF_MAX_MS: Final = 30_000
#: Attempts under the policy `drop` (PL-907).
DROP_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Stretch:
    """Dead letters of consecutive offsets that are treated alike. `attempts`: how many times they failed on their own,
    while others of the share-partition were written. `alone`: whether this is a single dead letter that gets a round of
    its own. `bare`: whether the copy of its record is left out. `reason`: why a member gave its records up; "" if
    unknown (PL-943)."""

    first: int
    last: int
    dead_letter_id: int
    delivery_count: int
    cause: str
    since_ms: int
    due_ms: int
    attempts: int = 0
    alone: bool = False
    bare: bool = False
    reason: str = ""

    @property
    def letters(self) -> int:
        """The number of letters."""
        return self.last - self.first + 1

    def cut(self, first: int, last: int) -> Stretch:
        """Return the part from `first` to `last`."""
        return replace(self, first=first, last=last)

    def singles(self, bare: bool = False) -> list[Stretch]:
        """Return each dead letter as a stretch with a round of its own. `bare`: leave out the copies of the records."""
        return [
            replace(self, first=offset, last=offset, alone=True, bare=self.bare or bare)
            for offset in range(self.first, self.last + 1)
        ]

    def failed(self, due_ms: int) -> Stretch:
        """Return the stretch with one more failed attempt of its own, due again at `due_ms`."""
        return replace(self, due_ms=due_ms, attempts=self.attempts + 1)


class WaitingLetters:
    """The dead letters of one share-partition that are waiting or being written. `failure`: why the last attempt
    failed; `attempts`: how many failed in a row; `pace`: how many of them failed since topics or configs last changed,
    which sets the pause before the next one (PL-912)."""

    __slots__ = ("_out", "_waiting", "attempts", "failure", "pace")

    def __init__(self) -> None:
        self._waiting: list[Stretch] = []
        self._out: list[Stretch] = []
        self.attempts = 0
        self.pace = 0
        self.failure: Failure | None = None

    @property
    def count(self) -> int:
        """How many dead letters are not written yet."""
        return sum(stretch.letters for stretch in self._waiting) + sum(stretch.letters for stretch in self._out)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest of them was submitted; None if there are none."""
        return min((stretch.since_ms for stretch in (*self._waiting, *self._out)), default=None)

    @property
    def due_ms(self) -> int | None:
        """When the next round may start; None while one is running, or if nothing is waiting."""
        return None if self._out else min((stretch.due_ms for stretch in self._waiting), default=None)

    def spans(self) -> list[tuple[int, int]]:
        """Return the offsets of all unwritten dead letters, ascending."""
        return sorted((stretch.first, stretch.last) for stretch in (*self._waiting, *self._out))

    def all(self) -> list[Stretch]:
        """Return all unwritten dead letters without removing them."""
        return [*self._waiting, *self._out]

    def add(self, letter: DeadLetter, now_ms: int, since_ms: int | None = None) -> None:
        """Add the dead letters of one `DeadLetter`. If earlier ones are waiting for a retry, these wait with them.
        `since_ms`: the time since which they are known to have been waiting; None means now."""
        due_ms = now_ms
        if self.attempts and self._waiting:
            due_ms = max(now_ms, min(stretch.due_ms for stretch in self._waiting))
        since = now_ms if since_ms is None else since_ms
        fresh = [
            Stretch(low, high, letter.dead_letter_id, count, letter.cause, since, due_ms, reason=reason)
            for first, last, count in letter.ranges
            for low, high, _, reason in parts(first, last, letter.failures)
        ]
        self._waiting = list(merge(self._waiting, fresh, key=_first))

    def take(self, now_ms: int, letters_max: int = ROUND_LETTERS_MAX) -> list[Stretch]:
        """Take the next round: the dead letters that are due, in offset order. Returns none while a round is
        running."""
        if self._out:
            return []
        left: list[Stretch] = []
        room = letters_max
        for stretch in self._waiting:
            if stretch.due_ms > now_ms or not room or (stretch.alone and self._out):
                left.append(stretch)
                continue
            if stretch.alone:
                room = 1
            last = min(stretch.last, stretch.first + room - 1)
            self._out.append(stretch.cut(stretch.first, last))
            room -= last - stretch.first + 1
            if last < stretch.last:
                left.append(stretch.cut(last + 1, stretch.last))
        self._waiting = left
        return list(self._out)

    def end(self, put_back: Iterable[Stretch]) -> None:
        """End the round. `put_back`: those of its dead letters that still have to be written."""
        self._out = []
        self._waiting = sorted([*self._waiting, *put_back], key=_first)

    def failed(self, failure: Failure) -> None:
        """Note an attempt that failed for all dead letters. Incomplete metadata does not count as an attempt."""
        counts = failure.reason is not Reason.METADATA
        self.attempts += counts
        self.pace += counts
        self.failure = failure

    def succeeded(self) -> None:
        """Note that dead letters were written."""
        self.attempts = self.pace = 0
        self.failure = None

    def put_off(self, due_ms: int) -> None:
        """Postpone all dead letters until at least `due_ms`, because the last failure would affect every one of
        them."""
        self._waiting = [replace(stretch, due_ms=max(due_ms, stretch.due_ms)) for stretch in self._waiting]

    def hurry(self, now_ms: int) -> None:
        """Make every dead letter due now, because something changed that may let them be written. If that attempt
        fails, for example because a new topic has no leader yet, the next pause is short."""
        self.pace = 0
        self._waiting = [replace(stretch, due_ms=min(now_ms, stretch.due_ms)) for stretch in self._waiting]

    def take_all(self) -> list[Stretch]:
        """Remove and return the dead letters that are waiting, not those being written; they are given up or left to a
        successor."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def take_failed(self) -> list[Stretch]:
        """Remove and return the dead letters that are waiting because they failed, not those that were never tried."""
        if self.attempts:
            return self.take_all()
        failed = [stretch for stretch in self._waiting if stretch.attempts]
        self._waiting = [stretch for stretch in self._waiting if not stretch.attempts]
        return failed


def by_letter(stretches: Iterable[Stretch]) -> dict[int, list[tuple[int, int]]]:
    """Return the offsets of each `DeadLetter`, by its id, ascending."""
    found: dict[int, list[tuple[int, int]]] = {}
    for stretch in sorted(stretches, key=_first):
        found.setdefault(stretch.dead_letter_id, []).append((stretch.first, stretch.last))
    return found


def pause_ms(attempts: int, jitter: float) -> int:
    """Return the pause after this many failures in a row; `jitter` (0 to 1) makes it up to a fifth shorter or
    longer."""
    base = min(BACKOFF_MAX_MS, BACKOFF_MS << min(max(attempts - 1, 0), 10))
    return int(base * (0.8 + 0.4 * jitter))


def _first(stretch: Stretch) -> int:
    return stretch.first
