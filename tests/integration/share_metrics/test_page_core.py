"""A page's core, compared with the metrics that Spark computes from the same rows; and the pages of both ways."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.archive.page_rows import PageFiles
from share_metrics.ingest.job import Cluster, collected
from share_metrics.ingest.log_samples import samples, stored_samples
from share_metrics.ingest.writing import stored
from share_metrics.metrics import (
    deletions_of,
    episodes,
    fill_windows,
    group_windows,
    known_ends,
    measure,
    memberships,
    progress_of,
    quality,
    replay_windows_of,
    stalls,
    with_arrivals,
    with_delayed,
)
from share_metrics.metrics.common import KEY, since, until
from share_metrics.metrics.newest import topic_names
from share_metrics.pages import collected_here
from share_metrics.reader import Kind
from share_metrics.replay.measuring import EVERY, measured
from share_metrics.report import Known, render
from share_metrics.report.figures import Around, Figures, figures_of
from share_metrics.report.filled_windows import filled_windows, steps_of
from share_metrics.report.group_figures import COLUMNS, GroupFigures, group_figures
from share_metrics.report.periods import READ_BACK, Period, period_of
from share_metrics.report.seen_ends import NONE, SeenEnds, batch_sums, limits_of, merged, seen_ends
from tests.support.kept_history import History

#: The values of a window, by their names in Spark and in the core.
VALUES: Final = {
    "entries": "entries", "finished_count": "finished", "last_lag": "lag", "lag_least": "least", "delayed": "delayed",
    "arrived": "arrived", "gone": "gone",
}  # fmt: skip
_US: Final = 1_000_000


class Both:
    """The rows of a random history, as tables and as DataFrames; and what is known of its logs, by both ways."""

    def __init__(self, spark: SparkSession, data: Path) -> None:
        history = History(21)
        history.store(data)
        self.period: Period = period_of(
            history.at(1_500), history.at(history.span_s), 60, Known(history.at(history.span_s - 100))
        )
        period = self.period
        back = period.begin - READ_BACK
        files = PageFiles(data, back, period.end)
        (self.rows,) = files.states()
        self.group_figures: GroupFigures = group_figures(files.groups(COLUMNS).to_batches(), period)
        limits = limits_of(period)
        logs = stored(spark, data, Kind.LOG_META).where(F.col("ts") < F.lit(period.end))
        sums = merged(batch_sums(part, limits) for part in (logs.limit(40).toArrow(), logs.offset(40).toArrow()))
        self.seen: dict[tuple[str, int], SeenEnds] = seen_ends(stored_samples(data, None, period.end), sums, limits)
        states, groups = (stored(spark, data, kind) for kind in (Kind.SHARE_STATE, Kind.GROUP))
        self.states = since(until(states, F.lit(period.end)), F.lit(back)).localCheckpoint()
        self.groups = until(groups, F.lit(period.end)).localCheckpoint()
        before = samples(spark, data, None, period.end)
        self.ends = known_ends(before, logs, 60, period.read_until, back)
        found = measure(self.states, 60).localCheckpoint()
        filled = fill_windows(
            progress_of(found), 60, datetime.fromtimestamp(period.begin.timestamp() - 60, UTC), period.end,
            deletions_of(found), self.ends,
        )  # fmt: skip
        self.filled = with_delayed(filled, replay_windows_of(found)).localCheckpoint()


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(spark, tmp_path_factory.mktemp("history"))


def plain(row: Any, *without: str) -> dict[str, Any]:
    """A row of Spark's as plain values; times in µs."""
    return {name: as_us(value) for name, value in row.asDict(recursive=True).items() if name not in without}


def as_us(value: Any) -> Any:
    return int(value.replace(tzinfo=UTC).timestamp()) * _US if isinstance(value, datetime) else value


def rows_of(found: DataFrame) -> list[Any]:
    """The rows, with times in UTC."""
    times = [name for name, kind in found.dtypes if kind == "timestamp"]
    return found.withColumns({name: F.col(name).cast("long") * _US for name in times}).collect()


def known(values: Any) -> list[Any]:
    return [None if value == NONE else value for value in values.tolist()]


def of_core(both: Both) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Each window by the core: its key and start, and its values."""
    for stream in measured(both.rows.select(list(EVERY.needed)).to_batches(), 60 * _US):
        for key, progress in stream.progress.items():
            steps = steps_of(progress.windows)
            found = filled_windows(steps, stream.replays[key].windows, both.seen.get(key[1:]), both.period)
            columns = {name: known(getattr(found, own)) for name, own in VALUES.items()}
            for number, at in enumerate(found.window_us.tolist()):
                yield (*key, at), {name: column[number] for name, column in columns.items()}


@pytest.mark.rule("PM-31", "PM-42", "PM-88", "PM-95", "PM-113")
def test_each_window_of_the_core_has_the_values_that_spark_has(both: Both) -> None:
    """Both may break PM-31 in the same way: that gauges are carried for at most an hour is not shown here."""
    arrivals = with_arrivals(both.filled, 60, both.period.read_until)
    expected = {
        tuple(row[name] for name in (*KEY, "window")): {name: row[name] for name in VALUES} for row in rows_of(arrivals)
    }
    found = dict(of_core(both))
    assert found.keys() == expected.keys()
    assert {at: row for at, row in found.items() if row != expected[at]} == {}
    assert len({row["last_lag"] for row in found.values()}) > 20
    assert {row["lag_least"] for row in found.values()} == {row["gone"] for row in found.values()} == {True, False}
    assert any(row["delayed"] for row in found.values())


@pytest.mark.rule("PM-61", "PM-90", "PM-113")
def test_standstills_of_the_core_are_those_that_spark_finds(both: Both) -> None:
    period = both.period
    figures = figures_of(
        both.rows.select(list(EVERY.needed)).to_batches(), Around(period, both.seen, both.group_figures.live)
    )
    lonely = (F.col("kind") == "abandoned") & (F.col("window") < F.lit(period.read_until))
    here = (F.col("window") >= F.lit(period.begin)) & ((F.col("window") < F.lit(period.known_end)) | lonely)
    still = stalls(both.filled, group_windows(both.groups)).where(here).localCheckpoint()
    expected = [row.asDict() for row in rows_of(still)]
    assert {row["kind"] for row in expected} == {"stalled", "abandoned"}
    assert figures.counts["stalls"] == len(expected)
    runs = [row.asDict() for row in rows_of(episodes(still))]

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("kind", *KEY, "since"))

    assert sorted(figures.episodes, key=key) == sorted(runs, key=key)
    assert all(row in expected for row in figures.stalls)


@pytest.mark.rule("PM-19", "PM-54", "PM-55", "PM-57", "PM-64", "PM-113")
def test_groups_of_the_core_are_those_that_spark_finds(both: Both) -> None:
    names = ("joins", "leaves", "rebalances", "epoch_bumps", "flapping", "members", "state")
    expected = {
        (row["group_id"], row["window"]): {name: row[name] for name in names}
        for row in rows_of(group_windows(both.groups))
    }
    found = {
        (group, at): {name: getattr(window, name) for name in names}
        for group, windows in both.group_figures.windows.items()
        for at, window in windows.items()
    }
    assert found == expected
    assert any(row["flapping"] for row in found.values())
    assert both.group_figures.names == {row[0]: row[1] for row in topic_names(both.groups).collect()}
    members = [plain(row) for row in memberships(both.groups).collect()]
    shown = [{name: value for name, value in row.items() if name != "has"} for row in both.group_figures.members]
    order = ("group_id", "member_id")
    assert shown
    assert sorted(shown, key=lambda row: [row[name] for name in order]) == sorted(
        members, key=lambda row: [row[name] for name in order]
    )
    assert both.group_figures.quality == [plain(row, "newest_ts") for row in quality(both.groups).collect()]


@pytest.mark.rule("PM-37", "PM-111", "PM-113")
@pytest.mark.parametrize(
    ("seed", "window_s", "begin", "log_meta"), [(31, 60, 1_500, True), (32, 10, 4_000, False), (33, 3_600, 0, True)]
)
def test_the_page_of_this_process_has_the_bytes_of_sparks(  # noqa: PLR0917 - pytest passes them by name
    spark: SparkSession, tmp_path: Path, seed: int, window_s: int, begin: int, log_meta: bool
) -> None:
    history = History(seed)
    data = history.store(tmp_path, log_meta=log_meta)
    times = (history.at(begin), history.at(history.span_s) if seed % 2 else None)
    by_spark = collected(data, times, window_s, False, Cluster("local[1]"), print)
    here = collected_here(data, times, window_s, print)
    assert render(here) == render(by_spark)
    assert (here.counts, here.partitions) == (by_spark.counts, by_spark.partitions)
    assert here.counts is not None
    assert here.counts.stalls


@pytest.mark.rule("PM-113")
def test_figures_of_parts_add_up_to_those_of_the_whole(both: Both) -> None:
    around = Around(both.period, both.seen, both.group_figures.live)
    rows = both.rows.select(list(EVERY.needed))
    whole, parts = figures_of(rows.to_batches(), around), Figures()
    for stream in sorted(set(rows["stream"].to_pylist()), reverse=True):
        parts.merge(figures_of(rows.filter(pc.equal(rows["stream"], stream)).to_batches(), around))
    parts.loads.sort(key=lambda row: row["stream"])
    assert parts == whole
