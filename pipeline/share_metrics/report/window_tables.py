"""The tables of windows of a minute and of an hour, from one pass over the rows of streams (PM-35, PM-114). Pure.

It computes what `metrics.progress`, `with_log_ends`, `fill_windows` and `replay_windows` compute in Spark for share-
partitions, and `group_windows` for groups; a test compares them. The pass is of windows of a minute; those of an hour
are merged from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from share_metrics.replay.coarser import coarser_tallies, coarser_windows
from share_metrics.replay.measuring import Measured, Part, measured
from share_metrics.replay.progress_rows import COUNTS, NEWEST, NULLABLE, Window
from share_metrics.replay.replay import Tally
from share_metrics.replay.tally_rows import COLUMNS, TIME, tally_row
from share_metrics.replay.write_columns import Key
from share_metrics.report.filled_windows import Steps, filled_windows, steps_of, written_lags
from share_metrics.report.group_figures import GroupWindow, group_figures
from share_metrics.report.periods import Period, us_of
from share_metrics.report.seen_ends import NONE, Log, SeenEnds

#: The sizes of windows, s, by the names of their folders. The pass is of the first one.
SIZES: Final = {"1m": 60, "1h": 3_600}
#: What the pass over the rows has to find.
PARTS: Final = Part.REPLAY | Part.PROGRESS
#: The tables of share-partitions; those whose lag depends on the logs' ends are the first two.
LAGGING: Final = ("progress", "lag")
OF_STATES: Final = (*LAGGING, "replay")
#: How many rows are kept before they are given away.
HELD_MAX: Final = 500_000
_SECOND_US: Final = 1_000_000
_MINUTE_US: Final = SIZES["1m"] * _SECOND_US
_REASONS: Final = ("left", "expired", "fenced", "admin")
_KEY: Final = (("group_id", pa.string()), ("topic_id", pa.string()), ("partition", pa.int32()), ("window", TIME))
_TYPES: Final = {"state_epoch": pa.int32(), "done_at": TIME, "hwm_at": TIME, "lag_seen_at": TIME}
_REPLAY: Final = pa.schema([*_KEY, *COLUMNS])
_GROUPS: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("window", TIME),
        *((name, pa.int64()) for name in ("joins", "leaves", *(f"leaves_{reason}" for reason in _REASONS))),
        *((name, pa.int64()) for name in ("flapping", "rebalances", "epoch_bumps", "members")),
        ("members_mean", pa.float64()),
        ("state", pa.string()),
        ("churn_rate", pa.float64()),
        ("rebalance_rate", pa.float64()),
    ]
)
_WRITTEN: Final = tuple(name for name in COUNTS if name != "falls")

#: What was seen of the logs' ends up to the ends of windows, by the name of their size.
SeenLogs = Mapping[str, Mapping[Log, SeenEnds]]
#: The name of a table, the name of the size of its windows, and rows.
Found = tuple[str, str, Any]


class TableTimes(NamedTuple):
    """From which time on each table is written; a table that is not is left out. `read_until`: everything before it
    was read."""

    first: Mapping[str, datetime]
    read_until: datetime

    @property
    def begin(self) -> datetime:
        """The first time of all tables of share-partitions; of all tables if none of these is written."""
        of_states = [at for name, at in self.first.items() if name in OF_STATES]
        return min(of_states or self.first.values())

    def period(self, window_s: int) -> Period:
        """The windows of a size, from the first time on to the window in which `read_until` is."""
        end = datetime.fromtimestamp(-(-self.read_until.timestamp() // window_s) * window_s, UTC)
        return Period(self.begin, end, window_s, self.read_until, end)


class WindowTables:
    """The rows of the tables of share-partitions, for the streams taken so far."""

    def __init__(self, times: TableTimes, logs: SeenLogs) -> None:
        """`logs`: by the name of a size, what was seen of the logs' ends up to the ends of windows of this size."""
        self._logs = logs
        self._periods = {size: times.period(window_s) for size, window_s in SIZES.items()}
        self._first_us = {name: us_of(at) for name, at in times.first.items()}
        self._until_us = us_of(times.read_until)
        self._held: dict[tuple[str, str], list[tuple[Key, Any]]] = {}
        self.rows = 0

    def take(self, found: Measured) -> None:
        """Take the results for one stream, in windows of a minute."""
        for key, progress in found.progress.items():
            if progress.windows:
                self._progress(key, progress.windows)
        if "replay" in self._first_us:
            for key, replay in found.replays.items():
                self._replay(key, replay.windows)

    def give(self) -> Iterator[Found]:
        """The rows so far, which are then no longer kept."""
        held, self._held, self.rows = self._held, {}, 0
        for (name, size), parts in held.items():
            yield name, size, _MAKERS[name](parts, SIZES[size])

    def _progress(self, key: Key, windows: Mapping[int, Window]) -> None:
        for size, window_s in SIZES.items():
            of_size = windows if window_s * _SECOND_US == _MINUTE_US else coarser_windows(windows, 3_600 * _SECOND_US)
            steps, log, period = steps_of(of_size), self._logs[size].get(key[1:]), self._periods[size]
            if (first_us := self._first_us.get("progress")) is not None:
                here = steps.window_us >= first_us
                if here.any():
                    lags = written_lags(steps, log, period)
                    columns = _columns(steps) | {
                        "lag": lags.lag, "lag_seen_at": lags.seen_us, "lag_least": lags.least,
                        "anomalies": steps.anomalies + lags.anomalies,
                    }  # fmt: skip
                    self._keep("progress", size, key, {name: column[here] for name, column in columns.items()})
            if (first_us := self._first_us.get("lag")) is not None:
                filled = filled_windows(steps, {}, log, period)
                here = (filled.window_us >= first_us) & (filled.window_us < self._until_us)
                if here.any():
                    columns = {
                        "window": filled.window_us, "lag": filled.lag, "lag_least": filled.least, "gone": filled.gone,
                    }  # fmt: skip
                    self._keep("lag", size, key, {name: column[here] for name, column in columns.items()})

    def _replay(self, key: Key, tallies: Mapping[int, Tally]) -> None:
        for size, window_s in SIZES.items():
            of_size = tallies if window_s * _SECOND_US == _MINUTE_US else coarser_tallies(tallies, 3_600 * _SECOND_US)
            rows = [
                {"window": at, **tally_row(tally)}
                for at, tally in sorted(of_size.items())
                if at >= self._first_us["replay"]
            ]
            if rows:
                self._held.setdefault(("replay", size), []).append((key, rows))
                self.rows += len(rows)

    def _keep(self, name: str, size: str, key: Key, columns: Mapping[str, Any]) -> None:
        self._held.setdefault((name, size), []).append((key, columns))
        self.rows += len(columns["window"])


def state_tables(parts: Iterable[Iterable[Any]], times: TableTimes, logs: SeenLogs) -> Iterator[Found]:
    """The rows of the tables of share-partitions, from record batches of whole streams as `measured` needs them."""
    tables = WindowTables(times, logs)
    for batches in parts:
        for found in measured(batches, _MINUTE_US, parts=PARTS):
            tables.take(found)
            if tables.rows >= HELD_MAX:
                yield from tables.give()
    yield from tables.give()


def group_tables(batches: Sequence[Any], times: TableTimes) -> Iterator[Found]:
    """The rows of the table `groups`, from record batches of whole streams as `group_figures` needs them."""
    first_us = us_of(times.first["groups"])
    for size, window_s in SIZES.items():
        rows = [
            {"group_id": group, "window": at, **_group_row(window, window_s)}
            for group, windows in group_figures(batches, times.period(window_s)).windows.items()
            for at, window in sorted(windows.items())
            if at >= first_us
        ]
        if rows:
            yield "groups", size, pa.Table.from_pylist(rows, schema=_GROUPS)


def _group_row(window: GroupWindow, window_s: int) -> dict[str, Any]:
    mean = window.members_sum / window.events
    names = ("joins", "leaves", "flapping", "rebalances", "epoch_bumps", "members", "state")
    return {
        **{name: getattr(window, name) for name in names},
        **{f"leaves_{reason}": window.reasons[reason] for reason in _REASONS},
        "members_mean": mean,
        "churn_rate": (window.joins + window.leaves) / mean if mean > 0 else None,
        "rebalance_rate": window.rebalances / window_s,
    }


def _columns(steps: Steps) -> dict[str, Any]:
    """The windows as columns of numbers, NONE where a value is not known."""
    columns = {"window": steps.window_us, **{name: steps.sums[name] for name in COUNTS}}
    columns |= {name: np.where(steps.known[name], steps.sums[name], NONE) for name in NULLABLE}
    return columns | steps.newest


def _progress_table(parts: list[tuple[Key, Any]], window_s: int) -> Any:
    """The columns of `metrics.progress` and `with_log_ends`."""
    keys, columns = _joined(parts)
    finished, entries, size = columns["finished_count"], columns["entries"], columns["bytes"]
    snapshots, cold = columns["snapshots"], columns["cold_snapshots"]
    width = np.maximum(columns["speo"] - columns["spso"], 0)
    known = (columns["speo"] != NONE) & (columns["spso"] != NONE)
    plain = [(name, _array(columns[name], _TYPES.get(name))) for name in (*_WRITTEN, *NULLABLE, *NEWEST)]
    return pa.table(
        dict(
            [
                *keys,
                *plain,
                *((name, _array(columns[name], TIME)) for name in ("done_at", "hwm_at")),
                ("spso_rate", pa.array(columns["spso_delta"] / window_s)),
                ("finished_rate", pa.array(finished / window_s)),
                ("write_rate", pa.array(columns["writes"] / window_s)),
                ("lag", _array(columns["lag"])),
                ("in_flight_width", _array(np.where(known, width, NONE))),
                ("redelivery_ratio", _ratio(columns["redelivered_lb"], columns["finished_known"])),
                ("update_snapshot_ratio", _ratio(columns["updates"], snapshots)),
                ("cold_share", _ratio(cold, snapshots + cold)),
                ("entries_per_finished", _ratio(entries, finished)),
                ("bytes_per_finished", _ratio(size, finished)),
                ("snapshot_update_batches", _ratio(columns["snapshot_batches"], columns["update_batches"])),
                ("anomalies", _array(columns["anomalies"])),
                ("lag_seen_at", _array(columns["lag_seen_at"], TIME)),
                ("lag_least", pa.array(columns["lag_least"])),
            ]
        )
    )


def _lag_table(parts: list[tuple[Key, Any]], _window_s: int) -> Any:
    keys, columns = _joined(parts)
    flags = [(name, pa.array(columns[name])) for name in ("lag_least", "gone")]
    return pa.table(dict([*keys, ("lag", _array(columns["lag"])), *flags]))


def _replay_table(parts: list[tuple[Key, Any]], _window_s: int) -> Any:
    names = [name for name, _ in _KEY[:3]]
    rows = [dict(zip(names, key, strict=True)) | row for key, own in parts for row in own]
    return pa.Table.from_pylist(rows, schema=_REPLAY)


_MAKERS: Final[dict[str, Callable[[list[tuple[Key, Any]], int], Any]]] = {
    "progress": _progress_table, "lag": _lag_table, "replay": _replay_table,
}  # fmt: skip


def _joined(parts: list[tuple[Key, Any]]) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """The columns of all share-partitions, one after the other, and those of their keys and windows."""
    of = pa.array(np.repeat(np.arange(len(parts)), [len(columns["window"]) for _, columns in parts]))
    columns = {name: np.concatenate([own[name] for _, own in parts]) for name in parts[0][1]}
    keys = [
        (name, pa.array([key[place] for key, _ in parts], kind).take(of)) for place, (name, kind) in enumerate(_KEY[:3])
    ]
    return [*keys, ("window", _array(columns["window"], TIME))], columns


def _array(values: Any, kind: Any = None) -> Any:
    """Numbers as an Arrow array, null where they are NONE."""
    found = pa.array(values, pa.int64(), mask=values == NONE)
    return found if kind is None else found.cast(kind)


def _ratio(part: Any, whole: Any) -> Any:
    """part / whole; null where whole is 0 or one of them is not known."""
    known = (part != NONE) & (whole != NONE) & (whole != 0)
    return pa.array(part / np.where(known, whole, 1), mask=~known)
