"""Tracks partitions that cannot be written to at present; records without a key are sent to the others (CL-80).

A partition is unavailable while its leader is unknown, or while the sender retries a batch of it. Pure: events are
passed in with their times, and the methods return lines to log, one for each partition that stays unavailable. Holds at
most one entry per partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kip932.ids import TopicPartition

#: A partition is logged once it has been unavailable this long, in ms. A fail-over takes less time.
LOG_AFTER_MS: Final = 5_000

_Place = tuple[str, int]


class _Outage:
    __slots__ = ("cause", "logged", "since_ms")

    def __init__(self, cause: str, since_ms: int) -> None:
        self.cause = cause
        self.since_ms = since_ms
        self.logged = False


class UnavailablePartitions:
    """The unavailable partitions, and since when. Only the sender's loop changes it; `choose` may run in any thread."""

    def __init__(self) -> None:
        self._outages: dict[_Place, _Outage] = {}
        self._leaderless: frozenset[_Place] = frozenset()

    def __bool__(self) -> bool:
        return bool(self._outages)

    def failed(self, partition: TopicPartition, cause: str, now_ms: int) -> None:
        """Note that the leader did not accept a batch, which the sender will retry."""
        self._note(partition, cause, now_ms)

    def over(self, partition: TopicPartition) -> None:
        """Note that a batch was accepted or given up. Either way, the partition is used again if its leader is
        known."""
        if self._outages and partition not in self._leaderless:
            self._outages.pop(partition, None)

    def follow(self, leaderless: frozenset[_Place], now_ms: int) -> None:
        """Replace the set of partitions without a known leader."""
        for place in self._leaderless - leaderless:
            self._outages.pop(place, None)
        for place in leaderless:
            self._note(place, "its leader is unknown", now_ms)
        self._leaderless = leaderless

    def cause(self, partition: TopicPartition) -> str:
        """Return why the partition is unavailable; "" when it is available."""
        outage = self._outages.get(partition)
        return "" if outage is None else outage.cause

    def choose(self, topic: str, first: int, count: int) -> int:
        """Return the first available partition of `first`, `first` + 1, … modulo `count`; `first` if none is
        available."""
        outages = self._outages
        for step in range(count):
            number = (first + step) % count
            if (topic, number) not in outages:
                return number
        return first % count

    def lines(self, now_ms: int, partitions: Mapping[str, int]) -> list[str]:
        """Return the lines to log now; each is returned only once. `partitions`: the number of partitions of each
        topic."""
        lines: list[str] = []
        for (topic, number), outage in self._outages.items():
            if outage.logged or now_ms - outage.since_ms < LOG_AFTER_MS:
                continue
            outage.logged = True
            others = sum(1 for other in range(partitions.get(topic, 0)) if (topic, other) not in self._outages)
            lines.append(
                f"{topic}-{number} takes no records: {outage.cause}. "
                + (f"Records without a key go to the {others} other partitions. " if others else "")
                + "Records that wait for it are retried until delivery.timeout.ms is over; sharegroups topics describe "
                f"{topic} shows its leader."
            )
        return lines

    def _note(self, place: _Place, cause: str, now_ms: int) -> None:
        outage = self._outages.get(place)
        if outage is None:
            self._outages[place] = _Outage(cause, now_ms)
        else:
            outage.cause = cause
