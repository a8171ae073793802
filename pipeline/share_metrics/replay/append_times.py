"""Bounds on when the records of one share-partition were appended, and on how long they then took (PM-91).

A write reports the high watermark (PM-20 X5). So a record was appended after the last write whose high watermark was
below it, and no later than the first one whose high watermark was above it. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, log2
from typing import Any, Final, NamedTuple

import numpy as np

from share_metrics.replay.columns import spread

#: The maximum number of steps of the high watermark that are kept. Beyond it, neighbours are merged, which widens the
#: bounds.
STEPS_MAX: Final = 4_096
_PER_OCTAVE: Final = 4


class Step(NamedTuple):
    """Offsets from the previous step's `end` to before `end`, appended after `after_us` and by `by_us`, event times."""

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
        """Take a write's high watermark, if it has one. Append times below the first reported one are unknown."""
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
        """Add to `spans` how long the records `first`…`last` took, which finish now."""
        if first < self._begin:
            spans.unknown += min(last + 1, self._begin) - first
            first = self._begin
        index = bisect_right(self._steps, first, key=_end)
        while first <= last and index < len(self._steps):
            end, after_us, by_us = self._steps[index]
            spans.add(now_us - by_us, now_us - after_us, min(last + 1, end) - first)
            first, index = end, index + 1
        if first <= last:  # no write's high watermark has covered them yet
            spans.unknown += last + 1 - first

    def room(self, hwm: Any, has_hwm: Any) -> int:
        """How many of these writes can be taken at once: those before the first that would exceed STEPS_MAX."""
        new = self._rising(hwm, has_hwm)[1]
        return int(np.searchsorted(np.cumsum(new), STEPS_MAX - len(self._steps), side="right"))

    def run(self, time_us: Any, hwm: Any, has_hwm: Any) -> StepColumns:
        """All steps, including the new ones of these writes. Changes nothing; `ran` applies the result.

        `has_hwm`: which writes have a high watermark.
        """
        heard, new = self._rising(hwm, has_hwm)
        hearing = np.flatnonzero(heard)
        before = np.searchsorted(hearing, np.flatnonzero(new)) - 1
        after_us = np.where(before >= 0, time_us[hearing[before]], self._at_us) if new.any() else time_us[:0]
        known = np.array(self._steps or [Step(0, 0, 0)], dtype=np.int64)[: len(self._steps)]
        columns = (hwm[new], after_us, time_us[new])
        end, after, by = (np.concatenate([known[:, at], column]) for at, column in enumerate(columns))
        first_known = self._hwm is None and len(hearing) > 0
        begin = int(hwm[hearing[0]]) if first_known else self._begin
        newest = (int(hwm[hearing[-1]]), int(time_us[hearing[-1]])) if len(hearing) else (self._hwm, self._at_us)
        return StepColumns(end, after, by, len(known) + np.cumsum(new), begin, newest)

    def ran(self, steps: StepColumns, start: int) -> None:
        """Apply the result of `run`. `start`: the start offset after its writes."""
        self._begin, (self._hwm, self._at_us) = steps.begin, steps.newest
        gone = int(np.searchsorted(steps.end, start, side="right"))
        if gone:
            self._begin = max(self._begin, int(steps.end[gone - 1]))
        columns = (column[gone:].tolist() for column in (steps.end, steps.after_us, steps.by_us))
        self._steps = list(map(Step, *columns))

    def _rising(self, hwm: Any, has_hwm: Any) -> tuple[Any, Any]:
        """Return two masks: the writes whose high watermark is no lower than before, and those whose is higher."""
        before = -1 if self._hwm is None else self._hwm
        highest = np.maximum.accumulate(np.concatenate([[before], np.where(has_hwm, hwm, -1)]))
        heard = has_hwm & (hwm >= highest[:-1])
        new = heard & (hwm > highest[:-1])
        if self._hwm is None and heard.any():
            new[np.flatnonzero(heard)[0]] = False
        return heard, new

    def passed(self, start: int) -> None:
        """Forget the steps below `start`: those records have ended."""
        gone = bisect_right(self._steps, start, key=_end)
        if gone:
            self._begin = max(self._begin, self._steps[gone - 1].end)
            del self._steps[:gone]


class StepColumns(NamedTuple):
    """Steps as columns. `there[i]`: how many steps there are after write `i`. Below `begin` nothing is known.

    `newest`: the high watermark after the last write, and when it was reported.
    """

    end: Any
    after_us: Any
    by_us: Any
    there: Any
    begin: int
    newest: tuple[int | None, int]

    @staticmethod
    def rounded(bound: str, us: Any) -> tuple[list[int], Any]:
        """All values that `Spans` rounds to for that bound, and for each time the index of its value in them."""
        edges, values = _LEAST if bound == "least" else _MOST
        return values, np.searchsorted(edges, us, side="right")


def took_columns(steps: StepColumns, first: Any, last: Any, write: Any) -> tuple[Any, Any, Any]:
    """Like `AppendTimes.took`, but for many ranges of records; range `i` ends with the write `write[i]`.

    Returns parts of the ranges: the write of each, its step (−1 where unknown) and its size.
    """
    low = np.searchsorted(steps.end, first, side="right")
    of, step = spread(low, np.searchsorted(steps.end, last, side="right") + 1)
    edges = np.append(steps.end, np.iinfo(np.int64).max)
    begin = np.where(step == low[of], first[of], edges[step - 1])
    end = np.minimum(last[of] + 1, edges[step])
    early = np.clip(steps.begin - begin, 0, end - begin)
    unknown = step >= steps.there[write[of]]
    records = np.concatenate([np.where(unknown, 0, early), np.where(unknown, end - begin, end - begin - early)])
    steps_of = np.concatenate([np.full(len(of), -1), np.where(unknown, -1, step)])
    return np.concatenate([write[of]] * 2), steps_of, records


@dataclass(slots=True)
class Spans:
    """Record counts by a lower and by an upper bound of the ms that they took. Times are rounded outwards by at most a
    fifth.

    `unknown`: records with an unknown append time.
    """

    least: Counter[int] = field(default_factory=Counter)
    most: Counter[int] = field(default_factory=Counter)
    unknown: int = 0

    def add(self, least_us: int, most_us: int, records: int) -> None:
        """Count `records` records that took between `least_us` and `most_us`."""
        self.least[_below(least_us / 1000)] += records
        self.most[_above(most_us / 1000)] += records

    @property
    def rows(self) -> list[dict[str, int | str | None]]:
        """Rows of `bound` (`least`, `most` or `unknown`), `ms` and the number of `records`."""
        found: list[dict[str, int | str | None]] = [
            {"bound": name, "ms": ms, "records": records}
            for name, counts in (("least", self.least), ("most", self.most))
            for ms, records in sorted(counts.items())
        ]
        return [*found, {"bound": "unknown", "ms": None, "records": self.unknown}] if self.unknown else found


def percentile_ms(counts: Mapping[int, int], share: float) -> int | None:
    """The ms that `share` (0 to 1) of the records did not exceed; None without records."""
    total, reached = sum(counts.values()), 0
    for ms in sorted(counts):
        reached += counts[ms]
        if reached >= share * total:
            return ms
    return None


def _below(ms: float) -> int:
    return 0 if ms < 1 else floor(2 ** (floor(log2(ms) * _PER_OCTAVE) / _PER_OCTAVE))


def _above(ms: float) -> int:
    return ceil(2 ** (ceil(log2(ms) * _PER_OCTAVE) / _PER_OCTAVE)) if ms > 1 else ceil(max(ms, 0))


def _end(step: Step) -> int:
    return step.end


def _edges(rounded: Callable[[float], int]) -> tuple[Any, list[int]]:
    """The whole µs at which the rounded value changes, and the rounded values, one more than the edges."""
    edges: list[int] = []
    values = [rounded(0.0)]
    while (low := edges[-1] if edges else 0) < _LONGEST_US:
        high = max(2 * low, 4_000)
        if rounded(high / 1000) == values[-1]:
            edges.append(high)
            values.append(values[-1])
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if rounded(middle / 1000) == values[-1] else (low, middle)
        edges.append(high)
        values.append(rounded(high / 1000))
    return np.array(edges, dtype=np.int64), values


#: Longer than any time between two writes can be.
_LONGEST_US: Final = 1 << 60
_LEAST: Final = _edges(_below)
_MOST: Final = _edges(_above)
