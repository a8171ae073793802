"""Temporary views of a Spark session that answer the questions of `questions` in SQL (PM-89).

`register_views` takes rows from any origin; `register_history` takes the rows that were ingested into a directory. Both
compute once, as of one time, the tables that the views read, so that queries agree. Call them again for newer values.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.archive.commits import visible
from share_metrics.archive.folders import FolderError
from share_metrics.ingest.log_samples import samples
from share_metrics.ingest.read_up_to import read_up_to
from share_metrics.ingest.writing import KINDS, stored
from share_metrics.metrics import (
    convergence,
    deletions_of,
    fill_windows,
    group_windows,
    known_ends,
    measure,
    poison_of,
    progress_of,
    quality,
    replay_windows_of,
    shard_skew,
    stalls,
    with_arrivals,
    with_delayed,
)
from share_metrics.metrics.common import KEY, since, until
from share_metrics.metrics.newest import topic_names
from share_metrics.questions import QUESTIONS
from share_metrics.reader import Kind
from share_metrics.reader.schemas import WRITE_COUNTS
from share_metrics.report.periods import READ_BACK

#: How long before their end the views start by default.
SPAN: Final = timedelta(hours=1)
_COUNTS: Final = {
    **{count.summed: count.shown for count in WRITE_COUNTS.values()},
    "redelivered_lb": "redelivered_lb",
    "finished_known": "finished_known",
}
_PERCENTILES: Final = {f"release_to_final_{name}_ms": f"{name}_ms" for name in ("p50", "p95", "p99")}


class Rows(NamedTuple):
    """Rows of the kinds `share_state` and `group`; samples of log ends, and rows of the kind `log_meta`, if there are
    any (PM-18).

    Without either, a lag is known only from leaders' writes (PM-42).
    """

    states: DataFrame
    groups: DataFrame
    log_ends: DataFrame | None = None
    log_meta: DataFrame | None = None


class Times(NamedTuple):
    """The period that the views show: from `begin` to `at`, exclusive, in windows of `window_s` seconds.

    `made`: the current time, from which the age of the rows is computed. All have a time zone.
    """

    begin: datetime
    at: datetime
    made: datetime
    window_s: int = 60

    @property
    def edges(self) -> tuple[datetime, datetime]:
        """The start of the first window and the end of the last one. Raises ValueError if there is no window."""
        if self.begin >= self.at:
            raise ValueError(f"views cannot begin at {self.begin.isoformat()}: they end at {self.at.isoformat()}")
        first, last = self.begin.timestamp() // self.window_s, -(-self.at.timestamp() // self.window_s)
        return datetime.fromtimestamp(first * self.window_s, UTC), datetime.fromtimestamp(last * self.window_s, UTC)


def register_history(
    spark: SparkSession,
    data: Path | str,
    begin: datetime | None = None,
    at: datetime | None = None,
    window_s: int = 60,
) -> Times:
    """Register the views on the rows that were ingested into `data`. Returns the times that they show.

    `at` is by default the time up to which everything was read, or else a time just after the newest entry; `begin` is
    an hour before. Raises FolderError if nothing was ingested, ValueError if `begin` is not before `at`.
    """
    data, now = Path(data), datetime.now(UTC)
    if not any(visible(data, kind) for kind in KINDS):
        raise FolderError(
            f"nothing was ingested into {data} yet; run `sharegroups metrics ingest --store URL --data {data}` first"
        )
    states, groups = (stored(spark, data, kind) for kind in KINDS)
    at = at or read_up_to(data, now) or _after_newest(states, groups)
    times = Times(begin or at - SPAN, at, now, window_s)
    batches = stored(spark, data, Kind.LOG_META) if visible(data, Kind.LOG_META) else None
    ends = samples(spark, data, times.begin - READ_BACK, at + timedelta(microseconds=1))
    return register_views(Rows(states, groups, ends, batches), times)


def register_views(rows: Rows, times: Times | None = None) -> Times:
    """Register the views of `QUESTIONS`, and the tables that they read, as temporary views of the rows' session.

    Views of the same names are replaced. By default they show the last hour up to the newest row. Returns the times
    that they show. Raises ValueError if the start is not before the end.
    """
    if times is None:
        at = _after_newest(rows.states, rows.groups)
        times = Times(at - SPAN, at, datetime.now(UTC))
    for name, table in _tables(rows, times).items():
        table.localCheckpoint().createOrReplaceTempView(name)
    for question in QUESTIONS:
        rows.states.sparkSession.sql(question.sql).createOrReplaceTempView(question.view)
    return times


def _tables(rows: Rows, times: Times) -> dict[str, DataFrame]:
    """The tables that the views read, by name."""
    (begin, end), window_s = times.edges, times.window_s
    states = since(until(rows.states, F.lit(times.at)), F.lit(begin - READ_BACK)).localCheckpoint()
    groups = until(rows.groups, F.lit(times.at)).localCheckpoint()
    ends = known_ends(rows.log_ends, rows.log_meta, window_s, times.at, begin - READ_BACK)
    if ends.marks is not None:
        ends = ends._replace(marks=ends.marks.localCheckpoint())
    topics = topic_names(groups).localCheckpoint()
    found = measure(states, window_s).localCheckpoint()
    windows, replays = progress_of(found, window_s), replay_windows_of(found)
    filled = fill_windows(windows, window_s, begin, end, deletions_of(found), ends)
    filled = with_delayed(filled, replays, window_s).localCheckpoint()
    members = group_windows(groups, window_s).localCheckpoint()
    last = F.lit(end) - F.expr(f"interval {window_s} seconds")
    here = (F.col("window") >= F.lit(begin)) & (F.col("window") < F.lit(end))
    lasting = F.col("computed_at") >= F.lit(begin)
    by_kind = [
        quality(of).withColumn("kind", F.lit(str(kind))) for kind, of in zip(KINDS, (states, groups), strict=True)
    ]
    tables = {
        "share_windows": _share_windows(filled, windows, times).where(here).withColumn("last_window", last),
        "share_standstills": stalls(filled, members).where(here).withColumn("last_window", last),
        "share_suspects": poison_of(found).where(F.col("last_seen") >= F.lit(begin)),
        "share_replays": replays.where(here).withColumnsRenamed(_PERCENTILES),
    }
    return {"share_topics": topics} | {name: _named(table, topics) for name, table in tables.items()} | {
        "share_assignments": convergence(groups).where(lasting),
        "share_group_windows": members.where(here),
        "share_loads": shard_skew(states),
        "share_streams": by_kind[0].unionByName(by_kind[1]).withColumn("made_s", F.lit(times.made.timestamp())),
    }  # fmt: skip


def _share_windows(filled: DataFrame, windows: DataFrame, times: Times) -> DataFrame:
    """Rows of `with_arrivals` with the counts of the window."""
    arrivals = with_arrivals(filled, times.window_s, times.at)
    counted = windows.select(*KEY, "window", *(F.col(name).alias(shown) for name, shown in _COUNTS.items()))
    return arrivals.join(counted, [*KEY, "window"], "left").select(
        *KEY, "window", F.col("last_lag").alias("lag"), "lag_least", "delayed", "gone", "arrived",
        F.col("finished_count").alias("finished"), *_COUNTS.values(), "seconds",
    )  # fmt: skip


def _named(table: DataFrame, topics: DataFrame) -> DataFrame:
    """Rows with `topic`: the topic's name, or its id if no record names it."""
    name: Column = F.coalesce("topic_name", "topic_id").alias("topic")
    others = [column for column in table.columns if column not in KEY]
    return table.join(F.broadcast(topics), "topic_id", "left").select(
        "group_id", name, "topic_id", "partition", *others
    )


def _after_newest(*rows: DataFrame) -> datetime:
    """The second that follows the newest entry; now if there is none."""
    newest = [of.agg(F.max("ts").cast("double")).collect()[0][0] for of in rows]
    return max((datetime.fromtimestamp(int(at) + 1, UTC) for at in newest if at is not None), default=datetime.now(UTC))
