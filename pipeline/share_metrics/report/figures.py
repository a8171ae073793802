"""What a page says of the share-partitions of some streams: sums, charts, standstills, failed records. Pure.

Each stream's share-partitions are taken one after the other. The result is small, however many rows there are, and the
results of several streams can be merged, so that each may come from another process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from share_metrics.replay.columns import begins
from share_metrics.replay.given_reasons import GivenReasons
from share_metrics.replay.measuring import Measured, measured
from share_metrics.replay.poison import POISON_MAX, Reason
from share_metrics.replay.progress_rows import NULLABLE, STALL_AFTER_S
from share_metrics.replay.replay import Replay
from share_metrics.replay.write_columns import Key
from share_metrics.report.filled_windows import Filled, Steps, anomalies_of, filled_windows, steps_of
from share_metrics.report.model import MARKS_MAX, ROWS_MAX, SHOWN_MAX, Point
from share_metrics.report.partition_lines import BEFORE, KEY, SUMMED, archived, key_of, still_at_end
from share_metrics.report.periods import Period, us_of
from share_metrics.report.seen_ends import NONE, SeenEnds

_SECOND_US: Final = 1_000_000
_KINDS: Final = {False: "stalled", True: "abandoned"}
_MARKS: Final = ("leader_epoch_changes", "state_epoch_resets")
#: A longer list is cut to the rows that a page shows.
_HELD_MAX: Final = 20 * ROWS_MAX

Row = dict[str, Any]
#: The number of members of each group at the ends of windows: their starts, µs, and the numbers.
Live = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Around:
    """What else the page of a share-partition depends on: the period, the ends of logs, the members of groups."""

    period: Period
    logs: Mapping[tuple[str, int], SeenEnds]
    live: Live


@dataclass(slots=True)
class Figures:
    """The share-partitions taken so far.

    `rows`: by key, the state at the end and the sums. `charts`: points of those with the largest lags. `stalls`,
    `episodes`, `poison`: the rows that a page shows, of all that `counts` counts. `ends`: records by group, bound and
    ms. `reasons`: by group, topic and kind: records, example and its time. `loads`: the streams.
    """

    rows: dict[Key, Row] = field(default_factory=dict)
    charts: dict[Key, tuple[Point, ...]] = field(default_factory=dict)
    stalls: list[Row] = field(default_factory=list)
    episodes: list[Row] = field(default_factory=list)
    poison: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    poison_least: bool = False
    ends: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    reasons: dict[tuple[str, str, str], tuple[int, str, int]] = field(default_factory=dict)
    loads: list[Row] = field(default_factory=list)

    def take(self, found: Measured, around: Around) -> None:
        """Take the results for one stream."""
        for key, progress in found.progress.items():
            if progress.windows:
                self._partition(key, steps_of(progress.windows), found.replays[key], around)
        for key, replay in found.replays.items():
            self._replay(key, replay, around.period)
        for key, reasons in found.reasons.items():
            self._reasons(key, reasons, around.period)
        self.loads.append({"stream": found.stream, **found.load.row()})

    def merge(self, other: Figures) -> None:
        """Take the share-partitions of another result, which has none of these streams."""
        self.rows |= other.rows
        self.charts |= other.charts
        self.stalls += other.stalls
        self.episodes += other.episodes
        self.poison += other.poison
        self.counts.update(other.counts)
        self.poison_least |= other.poison_least
        self.ends.update(other.ends)
        for kind, said in other.reasons.items():
            self._say(kind, said)
        self.loads += other.loads
        self.cut()

    def cut(self) -> None:
        """Keep only the rows that a page shows, in their order."""
        for name, order in _ORDERS.items():
            setattr(self, name, sorted(getattr(self, name), key=order)[:ROWS_MAX])
        for key in sorted(self.charts, key=self._place)[SHOWN_MAX:]:
            del self.charts[key]

    def _partition(self, key: Key, steps: Steps, replay: Replay, around: Around) -> None:
        period = around.period
        log = around.logs.get(key[1:])
        filled = filled_windows(steps, replay.windows, log, period)
        begin_us = us_of(period.begin)
        if not len(filled.window_us) or filled.window_us[-1] < begin_us:
            return
        sums = {**steps.sums, "anomalies": anomalies_of(steps, log, period)}
        named = dict(zip(KEY, key, strict=True))
        self.rows[key] = named | _at_end(filled, period) | _sums(steps, sums, period)
        self._chart(key, filled, period)
        self._stalls(key, filled, around)

    def _chart(self, key: Key, filled: Filled, period: Period) -> None:
        """Keep the points of the share-partition if its lag is among the largest so far."""
        self.charts[key] = ()
        if len(self.charts) > SHOWN_MAX:
            last = max(self.charts, key=self._place)
            del self.charts[last]
            if last == key:
                return
        here = filled.window_us >= us_of(period.begin)
        unread = (filled.window_us >= us_of(period.read_until)) & (filled.entries == 0)
        values = (np.where(unread, NONE, column) for column in (filled.lag, filled.finished))
        columns = (filled.window_us // _SECOND_US, *values, filled.least)
        points = zip(*(column[here].tolist() for column in columns), strict=True)
        self.charts[key] = tuple(Point(at, _known(lag), _known(done), least) for at, lag, done, least in points)

    def _place(self, key: Key) -> tuple[bool, int, Key]:
        return order_of(self.rows[key])

    def _stalls(self, key: Key, filled: Filled, around: Around) -> None:
        """The windows at whose end it had stood still, the unbroken runs of them, and for how long it stands still at
        the end (PM-61, PM-90)."""
        period = around.period
        still, named = _standing(filled, around.live.get(key[0])), dict(zip(KEY, key, strict=True))
        judged = still.at_us < us_of(period.known_end)
        judged |= still.lonely & (still.at_us < us_of(period.read_until))
        still = still.only(judged & (still.at_us >= us_of(period.begin)))
        if not len(still.at_us):
            return
        self.counts.update(stalls=len(still.at_us), stalled=int((~still.lonely).sum()), standing=1)
        last = {"last": int(still.at_us[-1]) // _SECOND_US, "kind": _KINDS[bool(still.lonely[-1])]}
        last |= {"still_s": int(still.still_s[-1])}
        ends = still_at_end([named | last], period.window_s, period.known_end, period.read_until)
        self.rows[key]["still_s"] = ends.get(key)
        for lonely, kind in _KINDS.items():
            own = still.only(still.lonely == lonely)
            shown = (column[-ROWS_MAX:].tolist() for column in own)
            self.stalls += [
                {**named, "window": at, "still_s": still_s, "lag": lag, "lag_least": least, "kind": kind}
                for at, still_s, lag, least, _ in zip(*shown, strict=True)
            ]
            self.episodes += [{**named, "kind": kind, **one} for one in _episodes(own, period.window_s * _SECOND_US)]
        self._cut_long()

    def _replay(self, key: Key, replay: Replay, period: Period) -> None:
        """Count incomplete windows, failed records, and how long records took to their end (PM-11, PM-48, PM-91)."""
        begin_us, end_us = us_of(period.begin), us_of(period.end)
        for at_us, tally in replay.windows.items():
            if begin_us <= at_us < end_us:
                self.counts["incomplete"] += tally.incomplete
                for one in tally.ends.rows:
                    self.ends[key[0], str(one["bound"]), int(one["ms"] or 0)] += int(one["records"] or 0)
        listed = [one for one in replay.poison() if one.last_seen_us >= begin_us]
        near = sum(one.reason is Reason.NEAR_LIMIT for one in listed)
        row = self.rows.get(key)
        count = len(listed)
        if count >= POISON_MAX:  # others may have failed: their number comes from the counters of writes
            count = max(count, near + (archived([row])[key] if row else 0))
            self.poison_least |= bool(near)
        self.counts["poison"] += count
        named = dict(zip(KEY, key, strict=True))
        self.poison += [named | one.row() for one in listed]
        self._cut_long()

    def _reasons(self, key: Key, reasons: GivenReasons, period: Period) -> None:
        for at_us, kinds in reasons.windows.items():
            if us_of(period.begin) <= at_us < us_of(period.end):
                for kind, said in kinds.items():
                    self._say((key[0], key[1], kind), (said.records, said.example, said.at_us))

    def _say(self, kind: tuple[str, str, str], said: tuple[int, str, int]) -> None:
        """Add records with reasons of a kind; the newest example is kept."""
        records, example, at_us = said
        before = self.reasons.get(kind)
        if before is not None:
            newest = max((before[2], before[1]), (at_us, example))
            records, example, at_us = records + before[0], newest[1], newest[0]
        self.reasons[kind] = (records, example, at_us)

    def _cut_long(self) -> None:
        for name, order in _ORDERS.items():
            own = getattr(self, name)
            if len(own) > _HELD_MAX:
                setattr(self, name, sorted(own, key=order)[:ROWS_MAX])


def figures_of(batches: Iterable[Any], around: Around) -> Figures:
    """What is found in states of whole streams, record batches as `measured` needs them."""
    found = Figures()
    for stream in measured(batches, around.period.window_s * _SECOND_US):
        found.take(stream, around)
    found.cut()
    return found


def first_due(figures: Figures) -> dict[Key, int]:
    """The start offsets of the share-partitions that have a lag."""
    there = figures.rows.items()
    return {key: row["spso"] for key, row in there if row["lag"] and row["spso"] is not None}


def ages_s(figures: Figures, appended_us: Mapping[Key, int], period: Period) -> dict[Key, float]:
    """The ages of the oldest unfinished records at the time of the lag, s (PM-42).

    `appended_us`: when those of `first_due` were appended, as far as it is known.
    """
    ages: dict[Key, float] = {key: 0.0 for key, row in figures.rows.items() if row["lag"] == 0}
    for key, at_us in appended_us.items():
        window_us = figures.rows[key]["window"]
        then_us = min(window_us + period.window_s * _SECOND_US, max(window_us, us_of(period.read_until)))
        ages[key] = max(0.0, then_us / _SECOND_US - at_us / _SECOND_US)
    return ages


def order_of(row: Mapping[str, Any]) -> tuple[bool, int, Key]:
    """The order of share-partitions on a page: those with a lag first, the largest first."""
    return row["lag"] is None, -(row["lag"] or 0), (row["group_id"], row["topic_id"], row["partition"])


def _is_abandoned(row: Row) -> bool:
    return bool(row["kind"] == "abandoned")


#: The orders of the tables of a page, by the names of `Figures`.
_ORDERS: Final = {
    "stalls": lambda row: (_is_abandoned(row), -row["window"], key_of(row)),
    "episodes": lambda row: (_is_abandoned(row), -row["until"], key_of(row), row["since"]),
    "poison": lambda row: (-row["last_seen"], key_of(row), row["offset"]),
}


def _known(value: int) -> int | None:
    return None if value == NONE else value


def _at_end(filled: Filled, period: Period) -> Row:
    """The state at the end: of the last window that was read or has records, otherwise of the last window (PM-37)."""
    window_us, begin_us = filled.window_us, us_of(period.begin)
    read = np.flatnonzero((window_us < us_of(period.read_until)) | (filled.entries > 0))
    last, judged = len(window_us) - 1, int(read[-1]) if len(read) else len(window_us) - 1
    gone = bool(filled.gone[last])
    before = int(np.searchsorted(window_us, begin_us)) - 1
    paced = (window_us >= begin_us) & (filled.arrived != NONE)
    some = bool(paced.any())
    return {
        "spso": _known(int(filled.spso[last])),
        "gone": gone,
        "lag": None if gone else _known(int(filled.lag[judged])),
        "lag_least": bool(filled.least[judged]),
        "delayed": _known(int(filled.delayed[last])),
        "window": int(window_us[judged]),
        "arrived": int(filled.arrived[paced].sum()) if some else None,
        "done": int(filled.finished[paced].sum()) if some else None,
        "seconds": float(sum(filled.seconds[paced].tolist())) if some else None,
        "lag_before": _known(int(filled.lag[before])) if before >= 0 else None,
        "least_before": bool(filled.least[before]) if before >= 0 else None,
        "not_before": before < 0 or bool(filled.gone[before]),
    }


def _sums(steps: Steps, sums: Mapping[str, Any], period: Period) -> Row:
    """The sums over the page, and over the period before it; None where no write has the number.

    A share-partition without writes did nothing, so its counts on the page are 0. `events`: its newest windows with new
    leaders or resets.
    """
    window_us, begin_us = steps.window_us, us_of(period.begin)
    here = (window_us >= begin_us) & (window_us < us_of(period.end))
    earlier = (window_us < begin_us) & (window_us >= us_of(period.before))
    idle = not here.any()

    def total(name: str, of: Any) -> int | None:
        there = of & steps.known[name] if name in NULLABLE else of
        return int(sums[name][there].sum()) if there.any() else None

    marked = np.flatnonzero(here & (sums[_MARKS[0]] + sums[_MARKS[1]] > 0))[::-1][:MARKS_MAX].tolist()
    events = [
        {"at": int(window_us[at]) // _SECOND_US, **{name: int(sums[name][at]) for name in _MARKS}} for at in marked
    ]
    found: Row = {name: 0 if idle else total(name, here) for name in SUMMED}
    return found | {"events": events} | {f"before_{name}": total(name, earlier) for name in BEFORE.values()}


class _Still(NamedTuple):
    """Windows at whose end a share-partition had stood still, as columns.

    `still_s`: since the last window in which it did not. `lonely`: its group had no members.
    """

    at_us: Any
    still_s: Any
    lag: Any
    least: Any
    lonely: Any

    def only(self, these: Any) -> _Still:
        """Some of the windows."""
        return _Still(*(column[these] for column in self))


def _standing(filled: Filled, live: tuple[Any, Any] | None) -> _Still:
    """The windows at whose end it had records due and had finished none for long enough."""
    due = np.where(filled.lag == NONE, 0, filled.lag - np.maximum(filled.delayed, 0))
    # A window where it is unknown whether anything was due also resets the time: a standstill must be seen to last.
    moving = (filled.finished > 0) | (due <= 0)
    first = begins(filled.era)
    start = np.repeat(first, np.diff(np.append(first, len(due))))
    moved = np.maximum.accumulate(np.where(moving, np.arange(len(due)), -1))
    still_s = (filled.window_us - filled.window_us[np.maximum(moved, start)]) // _SECOND_US
    members = np.ones(len(due), dtype=np.int64)
    if live is not None:
        at_us, numbers = live
        index = np.searchsorted(at_us, filled.window_us, side="right") - 1
        members = np.where(index >= 0, numbers[index], 1)
    lonely = members <= 0
    stalled = (due > 0) & (filled.finished == 0) & ((still_s >= STALL_AFTER_S) | lonely)
    return _Still(filled.window_us, still_s, filled.lag, filled.least, lonely).only(stalled)


def _episodes(still: _Still, window_us: int) -> Iterator[Row]:
    """Each unbroken run of windows: since when, until when, its largest lag, and whether that is a lower bound."""
    if not len(still.at_us):
        return
    first = np.flatnonzero(np.append([True], np.diff(still.at_us) > window_us))
    last = np.append(first[1:], len(still.at_us)) - 1
    lag = np.maximum.reduceat(still.lag, first)
    largest = still.lag == np.repeat(lag, last - first + 1)
    least = np.logical_or.reduceat(still.least & largest, first)
    since = still.at_us[first] - still.still_s[first] * _SECOND_US
    names = ("since", "until", "lag", "lag_least")
    columns = (since, still.at_us[last] + window_us, lag, least)
    for row in zip(*(column.tolist() for column in columns), strict=True):
        yield dict(zip(names, row, strict=True))
