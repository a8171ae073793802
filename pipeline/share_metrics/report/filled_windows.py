"""All windows of one share-partition, with its lag at the end of each, including those without records. Pure.

It computes in columns what `metrics.fill_windows`, `with_log_ends`, `with_delayed` and `with_arrivals` compute in Spark
(PM-31, PM-42, PM-88, PM-89); a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from share_metrics.replay.columns import begins
from share_metrics.replay.progress_rows import COUNTS, FRESH_S, NEWEST, NULLABLE, Window
from share_metrics.replay.replay import Tally
from share_metrics.report.periods import Period, us_of
from share_metrics.report.seen_ends import NONE, SeenAt, SeenEnds

_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Steps:
    """The windows of a share-partition in which something was written, in order, as columns.

    `window_us`: their starts. `sums`: by the names of COUNTS and NULLABLE. `known`: masks of the values of NULLABLE.
    `newest`: by the names of NEWEST, `done_at` and `hwm_at`; NONE where unknown. `gone`: it was deleted by its end.
    """

    window_us: Any
    sums: dict[str, Any]
    known: dict[str, Any]
    newest: dict[str, Any]
    gone: Any

    @property
    def anomalies(self) -> Any:
        """Falls of the finished records, and writes whose high watermark is below them."""
        done, hwm = self.newest["done"], self.newest["hwm"]
        return self.sums["falls"] + ((done != NONE) & (hwm != NONE) & (hwm < done))


def steps_of(progress: Mapping[int, Window]) -> Steps:
    """The windows of a share-partition by their starts, µs, of which there is at least one."""
    windows = sorted(progress.items())
    rows = [window for _, window in windows]
    sums = np.stack([window.sums for window in rows], axis=1)
    present = np.stack([window.present for window in rows], axis=1) > 0
    newest: dict[str, list[int]] = {name: [] for name in (*NEWEST, "done_at", "hwm_at")}
    for window in rows:
        for name in NEWEST:
            one = window.newest.get(name)
            shown = one if one is not None and one.era == window.era else None
            newest[name].append(NONE if shown is None else shown.value)
            if name in {"done", "hwm"}:
                newest[f"{name}_at"].append(NONE if shown is None else shown.time_us)
    return Steps(
        np.array([at for at, _ in windows], dtype=np.int64),
        dict(zip((*COUNTS, *NULLABLE), sums, strict=True)),
        dict(zip(NULLABLE, present, strict=True)),
        {name: np.array(values, dtype=np.int64) for name, values in newest.items()},
        np.array([window.gone for window in rows], dtype=bool),
    )


class Lags(NamedTuple):
    """The lag at the ends of windows, NONE where it is unknown; whether it is only a lower bound; and 1 where a sampled
    high watermark is below records that were finished before it, else 0.

    `seen_us`: up to when the end of the log is known, NONE where it is not.
    """

    lag: Any
    least: Any
    anomalies: Any
    seen_us: Any


def lags_at(windows_us: Any, values: Mapping[str, Any], seen: SeenAt, period: Period) -> Lags:
    """The lag of a share-partition at the ends of windows; at the time up to which everything was read, in the window
    in which that time is (PM-42).

    `values`: its `done`, `done_at`, `hwm` and `hwm_at` then. `seen`: what was seen of its log then.
    """
    done, done_at, hwm = values["done"], values["done_at"], values["hwm"]
    until_us = us_of(period.read_until)
    ends = windows_us + period.window_s * _SECOND_US
    then = np.where(windows_us < until_us, np.minimum(ends, until_us), ends)
    log_end = np.maximum(np.maximum(hwm, seen.sampled), seen.appended)
    seen_us = np.maximum(values["hwm_at"], seen.sampled_us)
    seen_us = np.maximum(seen_us, np.minimum(then, seen.exact_us))
    same = (log_end != NONE) & (log_end == seen.next_end)  # nothing was appended until then
    seen_us = np.where(same, np.maximum(seen_us, np.minimum(then, seen.next_us)), seen_us)
    fresh = seen_us >= then - FRESH_S * _SECOND_US
    known = (log_end != NONE) & (done != NONE)
    raw = np.where(known, log_end, 0) - np.where(known, done, 0)
    empty = fresh & (log_end != NONE) & (seen.log_start != NONE) & (log_end <= seen.log_start)
    none = (known & fresh & ((raw == 0) | (seen_us >= done_at))) | ((done == NONE) & empty)
    lag = np.where(known & (raw > 0), raw, np.where(none, 0, NONE))
    low = (hwm == NONE) & (seen.sampled_us != NONE) & (seen.sampled_us >= np.maximum(windows_us, done_at)) & (raw < 0)
    return Lags(lag, (lag > 0) & ~fresh, low.astype(np.int64), seen_us)


def anomalies_of(steps: Steps, log: SeenEnds | None, period: Period) -> Any:
    """The anomalies of each window: also a sampled high watermark below what was finished."""
    return steps.anomalies + written_lags(steps, log, period).anomalies


def written_lags(steps: Steps, log: SeenEnds | None, period: Period) -> Lags:
    """The lag at the end of each window in which something was written."""
    return lags_at(steps.window_us, steps.newest, _seen_at(log, steps.window_us), period)


def _seen_at(log: SeenEnds | None, windows_us: Any) -> SeenAt:
    return SeenAt(*[np.full(len(windows_us), NONE)] * len(SeenAt._fields)) if log is None else log.at(windows_us)


@dataclass(frozen=True, slots=True)
class Filled:
    """Windows of a share-partition, in order, with and without records, as columns; NONE where a value is unknown.

    `lag`: at the window's end, or a lower bound of it where `least`. `spso`: the last known start offset. `delayed`:
    records still delayed at the end. `arrived`: records that arrived in the window; `seconds`: how much of the window
    was read. `era`: numbers the lives and state epochs, across which nothing is carried. `gone`: it was deleted by the
    window's end.
    """

    window_us: Any
    entries: Any
    finished: Any
    lag: Any
    least: Any
    spso: Any
    delayed: Any
    arrived: Any
    seconds: Any
    era: Any
    gone: Any


def filled_windows(steps: Steps, tallies: Mapping[int, Tally], log: SeenEnds | None, period: Period) -> Filled:
    """The windows of `steps`, and the idle ones from the window before the period to its end.

    `tallies`: the results of a replay by window. `log`: what was seen of its log.
    """
    window_us = period.window_s * _SECOND_US
    era = _eras(steps)
    of, window = _with_idle(steps, window_us, us_of(period.begin) - window_us, us_of(period.end))
    has_row = steps.window_us[of] == window
    last = {name: _carried(steps, name, era, of) for name in ("spso", "done", "done_at", "hwm", "hwm_at")}
    found = lags_at(window, last, _seen_at(log, window), period)
    there = ~steps.gone[of]
    lag = np.where(there, found.lag, NONE)
    finished = np.where(has_row, steps.sums["finished_count"][of], 0)
    left_s = period.read_until.timestamp() - window / _SECOND_US
    same = np.append([False], era[of[1:]] == era[of[:-1]])
    before = np.append([NONE], lag[:-1])
    grown = same & (lag != NONE) & (before != NONE) & (left_s > 0)
    return Filled(
        window_us=window,
        entries=np.where(has_row, steps.sums["entries"][of], 0),
        finished=finished,
        lag=lag,
        least=there & found.least,
        spso=last["spso"],
        delayed=np.where(there, _delayed(steps, tallies, era, of, window + window_us), NONE),
        arrived=np.where(grown, lag - np.where(grown, before, 0) + finished, NONE),
        seconds=np.minimum(float(period.window_s), left_s),
        era=era[of],
        gone=~there,
    )


def _eras(steps: Steps) -> Any:
    """The number of the life and state epoch of each window."""
    epoch = steps.newest["state_epoch"]
    known = np.maximum.accumulate(np.where(epoch != NONE, np.arange(len(epoch)), -1))
    before = np.append([-1], known[:-1])
    other = (before >= 0) & (epoch != NONE) & (epoch != epoch[before])
    recreated = np.append([False], steps.gone[:-1]) | ((steps.sums["tombstones"] > 0) & ~steps.gone)
    return np.cumsum(recreated | other | (steps.sums["state_epoch_resets"] > 0))


def _with_idle(steps: Steps, window_us: int, begin_us: int, end_us: int) -> tuple[Any, Any]:
    """Each window of `steps`, followed by the idle ones after it: the index of its row, and its start."""
    first = np.maximum(steps.window_us + window_us, begin_us)
    through = np.append(steps.window_us[1:], [end_us]) - window_us
    idle = np.where(~steps.gone & (first <= through), (through - first) // window_us + 1, 0)
    of = np.repeat(np.arange(len(idle)), idle + 1)
    place = np.arange(len(of)) - np.repeat(np.cumsum(idle + 1) - idle - 1, idle + 1)
    return of, np.where(place == 0, steps.window_us[of], first[of] + (place - 1) * window_us)


def _last_in_era(there: Any, era: Any) -> Any:
    """For each row, the last one up to it in its era for which `there` is true; −1 without any."""
    last = np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))
    return np.where((last >= 0) & (era[last] == era), last, -1)


def _carried(steps: Steps, name: str, era: Any, of: Any) -> Any:
    """For each window, the last known value up to it in its era."""
    values = steps.newest[name]
    last = _last_in_era(values != NONE, era)[of]
    return np.where(last >= 0, values[last], NONE)


def _delayed(steps: Steps, tallies: Mapping[int, Tally], era: Any, of: Any, ends_us: Any) -> Any:
    """How many records are still delayed at the end of each window, by the last replayed window; NONE if unknown."""
    replayed = [tallies.get(window) for window in steps.window_us.tolist()]
    last = _last_in_era(np.array([one is not None for one in replayed], dtype=bool), era)[of]
    found = np.where(last >= 0, 0, NONE)
    edges = [*begins(last).tolist(), len(last)]
    for low, high in pairwise(edges):
        tally = replayed[last[low]] if last[low] >= 0 else None
        if tally is None:
            continue
        if tally.waits is None:
            found[low:high] = NONE
        for until_us, records in tally.waits or ():
            found[low:high] += np.where(ends_us[low:high] < until_us, records, 0)
    return found
