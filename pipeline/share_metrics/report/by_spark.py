"""Collects a page with Spark, which computes the figures of each stream where its rows are (PM-37, PM-112).

The driver merges the figures, which are small, and puts the page together; so a page takes few jobs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import ORDER, place, standing
from share_metrics.replay.measuring import EVERY
from share_metrics.replay.write_columns import Key
from share_metrics.report.assembled import assembled
from share_metrics.report.figures import Around, Figures, ages_s, figures_of, first_due
from share_metrics.report.group_figures import COLUMNS, GroupFigures, group_figures
from share_metrics.report.model import Report
from share_metrics.report.periods import READ_BACK, Known, Period, period_of
from share_metrics.report.seen_ends import (
    APPEND_COLUMNS,
    BATCH_COLUMNS,
    Limits,
    SeenEnds,
    batch_sums,
    earliest,
    first_appends,
    limits_of,
    merged,
    seen_ends,
)

R = TypeVar("R")
_EDGES_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        *((name, pa.int64()) for name in ("begun_epoch", "begun_seq", "ended_epoch", "ended_seq")),
    ]
)
#: Greater than every id.
_AFTER_ALL: Final = (1 << 63, 0)
_FOUND: Final = pa.schema([("found", pa.binary())])


class Logs(NamedTuple):
    """The topics' logs: samples of `log_ends` (PM-18), and rows of the kind `log_meta` if they were ingested."""

    ends: DataFrame
    batches: DataFrame | None = None


class RowsBetween:
    """Selects the rows for a page: applies `since` and `until` to several kinds with a single query (PM-7, PM-32).

    The query finds where each stream reaches the page's start and end. Its result, a row for each stream, is sent to
    the driver, so the plans that use it are short.
    """

    def __init__(self, rows: Sequence[DataFrame], begin: datetime, end: datetime) -> None:
        first, *others = (one.select("stream", "ts", *ORDER) for one in rows)
        for other in others:
            first = first.unionByName(other)
        at = {"begun": F.col("ts") >= F.lit(begin), "ended": F.col("ts") >= F.lit(end), "any": F.col("ts").isNotNull()}
        # By epoch too, so that the minimum is of plain numbers, which Spark aggregates without a sort.
        found = first.groupBy("stream", "epoch").agg(
            *(F.min(F.when(when, F.col("seq"))).alias(name) for name, when in at.items())
        ).collect()  # fmt: skip
        edges: dict[str, dict[str, tuple[int, int]]] = {}
        for row in found:
            here = edges.setdefault(row["stream"], {})
            for name in at:
                if row[name] is not None:
                    here[name] = min(here.get(name, _AFTER_ALL), (row["epoch"], row[name]))
        self._older = {
            name for name, one in edges.items() if "any" in one and one["any"] < one.get("begun", _AFTER_ALL)
        }
        none = (None, None)
        found_edges = [(name, *one.get("begun", none), *one.get("ended", none)) for name, one in sorted(edges.items())]
        columns = [list(column) for column in zip(*found_edges, strict=True)]
        self._edges = pa.table(columns or [[]] * 5, schema=_EDGES_SCHEMA)

    def until(self, rows: DataFrame) -> DataFrame:
        """Rows before the end, and those without a time."""
        return self._before(rows).select(*rows.columns)

    def both(self, rows: DataFrame) -> DataFrame:
        """Share-state rows before the end that `since` would keep for the start."""
        marked = self._before(rows)
        if not self._older:  # no stream has rows before the start
            return marked.select(*rows.columns)
        reached = F.struct(*ORDER) >= F.struct("begun_epoch", "begun_seq")
        known = F.col("begun_epoch").isNotNull()
        return standing(marked.withColumn("reached", F.coalesce(known & reached, F.lit(False))), rows.columns)

    def _before(self, rows: DataFrame) -> DataFrame:
        joined = rows.join(F.broadcast(rows.sparkSession.createDataFrame(self._edges)), "stream", "left")
        never = F.col("ts").isNull() | F.col("ended_epoch").isNull()
        return joined.where(never | (F.struct(*ORDER) < F.struct("ended_epoch", "ended_seq")))


def collect(  # noqa: PLR0917 - the parts of a report
    states: DataFrame,
    groups: DataFrame,
    begin: datetime,
    end: datetime,
    window_s: int = 60,
    logs: Logs | None = None,
    known: Known | None = None,
) -> Report:
    """The report from `begin` to `end` (exclusive), from rows of the kinds `share_state` and `group`.

    It covers whole windows: `begin` is rounded down and `end` up. Lag is computed from leaders' writes and from what
    `logs` show. What they show after the time of `known` is not used, since the records finished by then are unknown.
    With batches in `logs`, the report has lag in seconds. Idle windows are filled up to the end. After the time of
    `known`, no share-partition counts as stalled, and charts show only windows with records. Rows without a time, such
    as gaps, are always included.
    """
    period = period_of(begin, end, window_s, known)
    between = RowsBetween((states, groups), period.begin - READ_BACK, period.end)
    of_groups = GroupFigures(period)
    for own in found_by_stream(between.until(groups), COLUMNS, partial(group_figures, period=period)):
        of_groups.merge(own)
    around = Around(period, _seen(logs, period), of_groups.live)
    figures = Figures()
    for part in found_by_stream(between.both(states), EVERY.needed, partial(figures_of, around=around)):
        figures.merge(part)
    return assembled(period, figures, of_groups, _ages(logs, figures, period), known.behind_s if known else 0)


def found_by_stream(rows: DataFrame, columns: Sequence[str], find: Callable[[Iterable[Any]], R]) -> Iterator[R]:
    """The results of `find` for the rows of whole streams, in the order of `measured`: one for each task."""
    # Repeated rows are neighbours in this order (PM-34).
    needed = rows.select(*dict.fromkeys((*columns, "entry_id", "error")), place().alias("place")).repartition("stream")
    ordered = needed.sortWithinPartitions("stream", *ORDER, "place", "entry_id", "record_type").select(*columns)
    return found_by_task(ordered, find)


def found_by_task(rows: DataFrame, find: Callable[[Iterable[Any]], R]) -> Iterator[R]:
    """The results of `find` for the rows of each task."""

    def pickled(batches: Iterable[Any]) -> Iterator[Any]:
        yield pa.record_batch([pa.array([pickle.dumps(find(batches))], pa.binary())], schema=_FOUND)

    for row in rows.mapInArrow(pickled, "found binary").collect():
        yield pickle.loads(row["found"])


def _seen(logs: Logs | None, period: Period) -> dict[tuple[str, int], SeenEnds]:
    """What is known of the logs' ends up to the page's end."""
    if logs is None:
        return {}
    limits, end = limits_of(period), F.lit(period.end)
    samples = logs.ends.where(F.col("sampled_at") < end).toArrow()
    sums = []
    if logs.batches is not None:
        batches = logs.batches.where(F.col("ts") < end).select(*BATCH_COLUMNS)
        sums = list(found_by_task(batches, partial(_sums, limits=limits)))
    return seen_ends(samples, merged(sums), limits)


def _sums(batches: Iterable[Any], limits: Limits) -> Any:
    return merged(batch_sums(pa.Table.from_batches([batch]), limits) for batch in batches)


def _ages(logs: Logs | None, figures: Figures, period: Period) -> dict[Key, float]:
    """The ages of the oldest unfinished records, s, where the batches of logs were ingested (PM-42)."""
    if logs is None or logs.batches is None:
        return {}
    wanted = first_due(figures)
    batches = logs.batches.select(*APPEND_COLUMNS)
    return ages_s(figures, earliest(found_by_task(batches, partial(_appends, wanted=wanted))) if wanted else {}, period)


def _appends(batches: Iterable[Any], wanted: dict[Key, int]) -> dict[Key, int]:
    return earliest(first_appends(pa.Table.from_batches([batch]), wanted) for batch in batches)
