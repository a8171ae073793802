"""Lists the offsets of one share-partition that failed permanently or have one delivery left (PM-48). Pure.

Writes name the offsets that they archive, including those below the start offset, and the group's limit at that time
(PM-20 X9, X10). Writes of earlier builds name neither: for them the limit is a guess, and failures at the start offset
are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE, STATE_NAMES
from kip932.state_batches import ARCHIVED_AT_LIMIT, ArchivedRange

#: The maximum number of offsets listed per share-partition; the newest are kept.
POISON_MAX: Final = 100


class Reason(StrEnum):
    """Why an offset is listed."""

    NEAR_LIMIT = "one delivery left"
    AT_LIMIT = "delivery limit"
    REJECTED = "rejected"


class Poison(NamedTuple):
    """An offset that failed permanently, or that was released and has one delivery left. Times are event times, µs.

    `times_released`: how many times it was available again after a delivery, because it was released or given back, or
    because its lock expired: all its deliveries, but for the one that ended it.
    """

    offset: int
    delivery_state: int
    delivery_count: int
    reason: Reason
    first_seen_us: int
    last_seen_us: int
    times_released: int

    @property
    def state(self) -> str:
        """The name of the delivery state."""
        return STATE_NAMES[self.delivery_state]

    def row(self) -> dict[str, Any]:
        """The columns of `metrics.poison_of`, without the share-partition's."""
        return {
            "offset": self.offset,
            "state": self.state,
            "delivery_count": self.delivery_count,
            "reason": str(self.reason),
            "first_seen": self.first_seen_us,
            "last_seen": self.last_seen_us,
            "times_released": self.times_released,
        }


class Suspects:
    """The listed offsets of one share-partition. For each record call `take_write` first, and `passed` last."""

    __slots__ = ("_failed", "_limit", "_names_archived", "_near_limit")

    def __init__(self, delivery_limit: int) -> None:
        self._limit = delivery_limit
        self._names_archived = False
        self._near_limit: dict[int, Poison] = {}
        self._failed: dict[int, Poison] = {}

    @property
    def limit(self) -> int:
        """The group's delivery limit, as far as is known."""
        return self._limit

    @property
    def listed(self) -> tuple[list[int], list[int]]:
        """Two ascending lists: the offsets that change once the start offset passes them, and all listed offsets."""
        return sorted({*self._near_limit, *self._archiving}), sorted({*self._near_limit, *self._failed})

    @property
    def _archiving(self) -> list[int]:
        """The offsets whose dead letters are not written yet."""
        return [offset for offset, one in self._failed.items() if one.delivery_state == STATE_ARCHIVING]

    def heard(self, names_archived: bool) -> None:
        """Like `take_write`, but for a write that has neither archived records nor a new limit."""
        self._names_archived = names_archived

    def take_write(
        self, names_archived: bool, limit: int | None, archived: Iterable[ArchivedRange], now_us: int
    ) -> None:
        """Take a write's archived records and limit. `names_archived`: its build names all records that it archives."""
        self._names_archived = names_archived
        self._limit = limit or self._limit
        for first, last, count, reason in archived:
            why = Reason.AT_LIMIT if reason == ARCHIVED_AT_LIMIT else Reason.REJECTED
            for offset in _newest_of(first, last):
                self._fail(offset, STATE_ARCHIVED, count, why, now_us)

    def change(self, first: int, last: int, state: int, count: int, now_us: int) -> None:
        """Take a new state or delivery count of the offsets `first`…`last`."""
        if state == STATE_ACKNOWLEDGED:
            for known in (self._near_limit, self._failed):
                for offset in [one for one in known if first <= one <= last]:
                    del known[offset]
        elif state == STATE_AVAILABLE:
            if count >= self._limit - 1:
                for offset in _newest_of(first, last):
                    self._release(offset, count, now_us)
        elif self._names_archived:
            for offset in [one for one in self._failed if first <= one <= last]:
                self._failed[offset] = self._failed[offset]._replace(delivery_state=state)
        elif state == STATE_ARCHIVING or count >= self._limit:
            why = Reason.AT_LIMIT if count >= self._limit else Reason.REJECTED
            for offset in _newest_of(first, last):
                self._fail(offset, state, count, why, now_us)

    def passed(self, start_offset: int) -> None:
        """Update the offsets below the start offset: released ones that the write did not archive were accepted.

        The dead letters of archiving ones were written, or given up.
        """
        if not self._names_archived:
            return
        for offset in [one for one in self._near_limit if one < start_offset]:
            del self._near_limit[offset]
        for offset in [one for one in self._archiving if one < start_offset]:
            self._failed[offset] = self._failed[offset]._replace(delivery_state=STATE_ARCHIVED)

    def forget(self) -> None:
        """Drop the released offsets: the state was deleted or reset, so they have no deliveries left."""
        self._near_limit.clear()

    def newest(self) -> list[Poison]:
        """The listed offsets, at most POISON_MAX, newest first."""
        listed = [*self._near_limit.values(), *self._failed.values()]
        return sorted(listed, key=lambda one: (-one.last_seen_us, -one.offset))[:POISON_MAX]

    def _release(self, offset: int, count: int, now_us: int) -> None:
        known = self._near_limit.pop(offset, None) or self._failed.pop(offset, None)
        first_seen = known.first_seen_us if known else now_us
        _add(self._near_limit, Poison(offset, STATE_AVAILABLE, count, Reason.NEAR_LIMIT, first_seen, now_us, count))

    def _fail(self, offset: int, state: int, count: int, why: Reason, now_us: int) -> None:
        known = self._failed.get(offset)
        if known and (known.delivery_count, known.reason) == (count, why):
            self._failed[offset] = known._replace(delivery_state=state)  # dead letter written, or write repeated
            return
        known = self._near_limit.pop(offset, None) or self._failed.pop(offset, None)
        first_seen = known.first_seen_us if known else now_us
        _add(self._failed, Poison(offset, state, count, why, first_seen, now_us, max(count - 1, 0)))


def _newest_of(first: int, last: int) -> range:
    return range(max(first, last - POISON_MAX + 1), last + 1)


def _add(to: dict[int, Poison], one: Poison) -> None:
    to[one.offset] = one
    while len(to) > POISON_MAX:  # dicts keep their order: the oldest comes first
        del to[next(iter(to))]
