"""Where each log ended at the end of each window, by samples and by the append times of its batches (PM-95). Pure.

It computes in columns what `metrics.known_ends` computes in Spark; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from share_metrics.replay.write_columns import Key
from share_metrics.report.periods import READ_BACK, Period, us_of

#: Null, in columns of numbers without a mask; smaller than every number.
NONE: Final = np.iinfo(np.int64).min
_MOST: Final = np.iinfo(np.int64).max
_LOG: Final = ("topic_id", "partition")
#: The columns of `log_meta` that `batch_sums` needs.
BATCH_COLUMNS: Final = (*_LOG, "record_type", "base_offset", "log_end_offset", "ts")
#: Those that `first_appends` needs.
APPEND_COLUMNS: Final = (*_LOG, "record_type", "base_offset", "last_offset", "ts")
_BATCHES: Final = ("batch", "marker")
#: The sums of a log's batches in one window, and how they are made and merged.
_SUMS: Final = {"top": "max", "low": "min", "at": "max", "read_to": "max", "late": "max"}
_SUMS_SCHEMA: Final = pa.schema(
    [("topic_id", pa.string()), ("partition", pa.int32()), ("window", pa.int64())]
    + [(name, pa.int64()) for name in _SUMS]
)

Log = tuple[str, int]


class Limits(NamedTuple):
    """The windows of a page, µs: their length; the time after which nothing was read; and the start of the first one
    that matters: all batches before it are in one window."""

    window_us: int
    until_us: int
    begin_us: int


def limits_of(period: Period) -> Limits:
    """The limits of a page."""
    return Limits(period.window_s * 1_000_000, us_of(period.read_until), us_of(period.begin - READ_BACK))


class SeenAt(NamedTuple):
    """What was seen of a log up to the ends of windows, as columns; NONE where nothing was.

    `sampled_us`, `sampled`, `log_start`: the last sample. `next_us`, `next_end`: the first sample after the window.
    `appended`: the end of the log by its batches, which is exact until `exact_us`.
    """

    sampled_us: Any
    sampled: Any
    log_start: Any
    next_us: Any
    next_end: Any
    appended: Any
    exact_us: Any


class SeenEnds:
    """What was seen of one log."""

    __slots__ = ("_appended", "_appended_from", "_sampled", "_sampled_from")

    def __init__(self, samples: Any, batches: Any, limits: Limits) -> None:
        """`samples`: rows of time, high watermark and start, by time. `batches`: columns of `batch_sums`, by window.

        Either is None if there is nothing.
        """
        none = np.zeros((0, 0), dtype=np.int64)
        self._sampled_from, self._sampled = none, none
        self._appended_from, self._appended = none, none
        if samples is not None:
            self._sample(samples, limits.window_us)
        if batches is not None:
            self._append(batches, samples, limits.until_us)

    def at(self, windows_us: Any) -> SeenAt:
        """What was seen up to the ends of the windows with these starts."""
        sampled = _last(self._sampled_from, self._sampled, windows_us, 5)
        return SeenAt(*sampled, *_last(self._appended_from, self._appended, windows_us, 2))

    def _sample(self, samples: Any, window_us: int) -> None:
        """The last sample of each window, with the first one of the next window that has any."""
        windows = samples[0] // window_us
        first = np.flatnonzero(np.append([True], windows[1:] != windows[:-1]))
        last = np.append(first[1:], len(windows)) - 1
        none = np.full(1, NONE)
        own = [np.append(none, column[last]) for column in samples]
        following = [np.append(column[first], none) for column in samples[:2]]
        # At first, before every window, only the following sample is known.
        self._sampled_from = np.append([0], windows[first] * window_us)
        self._sampled = np.stack([*own, *following])

    def _append(self, batches: Any, samples: Any, until_us: int) -> None:
        """The end of the log by its batches, at the end of each window in which some were appended.

        The log ends at the first offset of the batches of later windows, or at the end of the last batch. If these
        differ, batches between them were gone before they were read, and the end is only a lower bound from the last
        batch on. After the newest batch, the end is exact up to the last sample that shows no more than what was read.
        """
        window, top, low, at, read_to, late = batches
        known = top != NONE
        if not known.any():
            return
        complete = NONE
        if late.any():
            complete = until_us
        elif samples is not None:
            complete = int(samples[0].max(initial=NONE, where=samples[1] <= read_to.max()))
        window, top, low, at = (column[known] for column in (window, top, low, at))
        top = np.maximum.accumulate(top)
        next_low = np.append(np.minimum.accumulate(low[::-1])[::-1][1:], [_MOST])
        exact = np.where(next_low <= top, np.append(window[1:], [NONE]), at)
        exact[-1] = max(int(at[-1]), complete)
        self._appended_from, self._appended = window, np.stack([np.minimum(top, next_low), exact])
        if low.min() == 0:  # the first batch is the log's first one: the log was empty before it
            self._appended_from = np.append([0], window)
            self._appended = np.concatenate([np.array([[0], [window[0]]]), self._appended], axis=1)


def seen_ends(samples: Any, sums: Any, limits: Limits) -> dict[Log, SeenEnds]:
    """What was seen of each log, from tables of `log_ends` (PM-18) and of `batch_sums`.

    Samples after the time of `limits` are left out, since what was finished by then is unknown.
    """
    late = pc.greater(samples["sampled_at"].cast(pa.int64()), limits.until_us)
    known = samples.filter(pc.and_(pc.is_valid(samples["high_watermark"]), pc.invert(late)))
    by_time = dict(_by_log(known, ("sampled_at", "high_watermark", "log_start_offset"), "sampled_at"))
    by_window = dict(_by_log(sums, ("window", *_SUMS), "window"))
    return {log: SeenEnds(by_time.get(log), by_window.get(log), limits) for log in by_time.keys() | by_window.keys()}


def batch_sums(rows: Any, limits: Limits) -> Any:
    """The sums of the batches of each log by window, from rows of `log_meta`; `merged` merges several of them."""
    leo = rows["log_end_offset"]
    batches = pc.is_in(rows["record_type"], value_set=pa.array(_BATCHES))
    rows = rows.filter(pc.and_(pc.and_(batches, pc.is_valid(leo)), pc.is_valid(rows["ts"])))
    at_us, leo = np.asarray(rows["ts"].cast(pa.int64())), np.asarray(rows["log_end_offset"])
    late = at_us > limits.until_us
    low = np.asarray(pc.coalesce(rows["base_offset"], rows["log_end_offset"]))
    window = np.maximum(at_us // limits.window_us * limits.window_us, limits.begin_us - limits.window_us)
    values = {"top": leo, "low": low, "at": at_us, "read_to": leo, "late": late.astype(np.int64)}
    masked = {name: late if name in {"top", "low", "at"} else None for name in values}
    columns = [pa.array(values[name], pa.int64(), mask=masked[name]) for name in _SUMS]
    table = pa.table([rows["topic_id"], rows["partition"], pa.array(window, pa.int64()), *columns], _SUMS_SCHEMA)
    return merged([table])


def merged(sums: Iterable[Any]) -> Any:
    """One table of `batch_sums` from several."""
    found = pa.concat_tables([_SUMS_SCHEMA.empty_table(), *sums])
    grouped = found.group_by([*_LOG, "window"]).aggregate(list(_SUMS.items()))
    return grouped.select([*_LOG, "window", *(f"{name}_{how}" for name, how in _SUMS.items())]).rename_columns(
        _SUMS_SCHEMA.names
    )


def first_appends(rows: Any, wanted: Mapping[Key, int]) -> dict[Key, int]:
    """When the batch with an offset of a share-partition's log was written first, µs, from rows of `log_meta`.

    `wanted`: the offsets. Share-partitions whose batch is not among the rows are left out.
    """
    by_log: dict[Log, list[tuple[Key, int]]] = {}
    for key, offset in wanted.items():
        by_log.setdefault(key[1:], []).append((key, offset))
    topics = pa.array(sorted({topic_id for topic_id, _ in by_log}), pa.string())
    there = pc.and_(pc.equal(rows["record_type"], "batch"), pc.is_in(rows["topic_id"], value_set=topics))
    rows = rows.filter(pc.and_(there, pc.is_valid(rows["ts"])))
    found: dict[Key, int] = {}
    for log, (base, last, at_us) in _by_log(rows, ("base_offset", "last_offset", "ts"), "ts"):
        for key, offset in by_log.get(log, ()):
            holding = np.flatnonzero((base <= offset) & (offset <= last))
            if len(holding):
                found[key] = int(at_us[holding[0]])
    return found


def earliest(parts: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """The results of `first_appends` for several parts of the rows, merged."""
    found: dict[Key, int] = {}
    for part in parts:
        for key, at_us in part.items():
            found[key] = min(at_us, found.get(key, at_us))
    return found


def _by_log(table: Any, columns: Iterable[str], order: str) -> Iterator[tuple[Log, Any]]:
    """For each log its rows in that order, as an array with a row for each of these columns."""
    table = table.sort_by([(name, "ascending") for name in (*_LOG, order)])
    numbers = np.stack([_numbers(table[name]) for name in columns])
    sizes = table.group_by([*_LOG], use_threads=False).aggregate([([], "count_all")]).to_pylist()
    begin = 0
    for row in sizes:
        yield (row["topic_id"], row["partition"]), numbers[:, begin : begin + row["count_all"]]
        begin += row["count_all"]


def _numbers(column: Any) -> Any:
    plain = column.cast(pa.int64())
    return np.asarray(pc.fill_null(plain, NONE))


def _last(begins: Any, columns: Any, windows_us: Any, width: int) -> Any:
    """For each window the column that holds for it, NONE before the first; an array with `width` rows."""
    if not len(begins):
        return np.full((width, len(windows_us)), NONE)
    index = np.searchsorted(begins, windows_us, side="right") - 1
    return np.where(index >= 0, columns[:, index], NONE)
