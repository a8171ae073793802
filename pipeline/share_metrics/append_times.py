"""When the records of one share-partition were appended, as far as writes show, and how long they then took (PM-91).

A write tells the high watermark (PM-20 X5). So a record was appended after the last write that did not have it yet, and
no later than the first one that had it. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, log2
from typing import Final, NamedTuple

#: How many steps of the high watermark are kept; at more, neighbours become one, which widens the bounds.
STEPS_MAX: Final = 4_096
_PER_OCTAVE: Final = 4


class Step(NamedTuple):
    """Offsets below `end`, from that of the step before: appended after `after_us` and by `by_us`, event times, µs."""

    end: int
    after_us: int
    by_us: int


class AppendTimes:
    """Steps of one log's high watermark."""

    __slots__ = ("_at_us", "_begin", "_hwm", "_steps")

    def __init__(self) -> None:
        self._hwm: int | None = None
        self._begin = 0
        self._at_us = 0
        self._steps: list[Step] = []

    def seen(self, hwm: int | None, now_us: int) -> None:
        """A write tells a high watermark. Of what lies below the first one it is not known when it was appended."""
        if hwm is None or (self._hwm is not None and hwm < self._hwm):
            return
        if self._hwm is None:
            self._begin = hwm
        elif hwm > self._hwm:
            self._steps.append(Step(hwm, self._at_us, now_us))
            if len(self._steps) > STEPS_MAX:
                pairs = zip(self._steps[::2], self._steps[1::2], strict=False)
                odd = self._steps[-1:] if len(self._steps) % 2 else []
                self._steps = [Step(two.end, one.after_us, two.by_us) for one, two in pairs] + odd
        self._hwm, self._at_us = hwm, now_us

    def took(self, first: int, last: int, now_us: int, spans: Spans) -> None:
        """The records `first`…`last` end now."""
        if first < self._begin:
            spans.unknown += min(last + 1, self._begin) - first
            first = self._begin
        index = bisect_right(self._steps, first, key=_end)
        while first <= last and index < len(self._steps):
            end, after_us, by_us = self._steps[index]
            spans.add(now_us - by_us, now_us - after_us, min(last + 1, end) - first)
            first, index = end, index + 1
        if first <= last:  # no write has told of them yet
            spans.unknown += last + 1 - first

    def passed(self, start: int) -> None:
        """Everything below `start` has ended, and is forgotten."""
        gone = bisect_right(self._steps, start, key=_end)
        if gone:
            self._begin = max(self._begin, self._steps[gone - 1].end)
            del self._steps[:gone]


@dataclass(slots=True)
class Spans:
    """How many records took at least, and at most, so many ms; times are rounded outwards by at most a fifth.

    `unknown`: records of which it is not known when they were appended.
    """

    least: Counter[int] = field(default_factory=Counter)
    most: Counter[int] = field(default_factory=Counter)
    unknown: int = 0

    def add(self, least_us: int, most_us: int, records: int) -> None:
        """So many records took between both times."""
        self.least[_below(least_us / 1000)] += records
        self.most[_above(most_us / 1000)] += records

    @property
    def rows(self) -> list[dict[str, int | str | None]]:
        """By `bound` (`least`, `most`, `unknown`): `ms`, and how many `records`."""
        found: list[dict[str, int | str | None]] = [
            {"bound": name, "ms": ms, "records": records}
            for name, counts in (("least", self.least), ("most", self.most))
            for ms, records in sorted(counts.items())
        ]
        return [*found, {"bound": "unknown", "ms": None, "records": self.unknown}] if self.unknown else found


def percentile_ms(counts: Mapping[int, int], share: float) -> int | None:
    """The ms that so large a share of the records did not exceed; None without records."""
    total, reached = sum(counts.values()), 0
    for ms in sorted(counts):
        reached += counts[ms]
        if reached >= share * total:
            return ms
    return None


def summed(rows: Iterable[Mapping[str, int | str | None]], bound: str) -> Counter[int]:
    """The counts of one bound by ms, from `rows` of several `Spans`."""
    found: Counter[int] = Counter()
    for row in rows:
        if row["bound"] == bound:
            found[int(row["ms"] or 0)] += int(row["records"] or 0)
    return found


def _below(ms: float) -> int:
    return 0 if ms < 1 else floor(2 ** (floor(log2(ms) * _PER_OCTAVE) / _PER_OCTAVE))


def _above(ms: float) -> int:
    return ceil(2 ** (ceil(log2(ms) * _PER_OCTAVE) / _PER_OCTAVE)) if ms > 1 else ceil(max(ms, 0))


def _end(step: Step) -> int:
    return step.end
