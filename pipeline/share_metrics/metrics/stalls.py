"""Adds the windows in which nothing was written, and finds stalled share-partitions (PM-31, PM-61)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.window import WindowSpec

from share_metrics.metrics.common import KEY, ORDER, timed, windowed
from share_metrics.metrics.known_ends import LogEnds
from share_metrics.metrics.lag import with_log_ends
from share_metrics.replay.progress_rows import STALL_AFTER_S

#: Counts that are 0 in a window without records; every other number is a gauge.
COUNTS: Final = ("spso_delta", "finished_count", "writes", "updates", "snapshots", "cold_snapshots", "entries", "bytes")
GAUGES: Final = ("spso", "done", "hwm", "speo", "in_flight_width", "state_epoch")
#: The values that lag is computed from, however old.
_OF_LAG: Final = ("done", "done_at", "hwm", "hwm_at")
_CARRIED_S: Final = 3_600
_RECORDS: Final = ("snapshot", "update", "tombstone")


def deletions(rows: DataFrame, window_s: int = 60) -> DataFrame:
    """The share-partitions that were deleted at the end of a window, with that window: their newest record is a
    tombstone."""
    records = windowed(timed(rows).where(F.col("record_type").isin(*_RECORDS)), window_s)
    newest_is_tombstone = F.max_by(F.col("record_type") == "tombstone", F.struct(*ORDER))
    return records.groupBy(*KEY, "window").agg(newest_is_tombstone.alias("gone")).where("gone")


def fill_windows(  # noqa: PLR0917 - what windows are filled with, and their time range
    windows: DataFrame,
    window_s: int = 60,
    begin: datetime | None = None,
    end: datetime | None = None,
    deleted: DataFrame | None = None,
    ends: LogEnds | None = None,
) -> DataFrame:
    """The columns of `progress` that make sense for idle windows too, for every window up to the last one overall.

    In idle windows counts are 0, and gauges are carried forward for at most an hour, so that charts show idleness, not
    holes (PM-31). `begin` and `end` are edges of windows: idle windows are added only between them. An `end` after the
    newest record also shows a stall in which nothing was written. `era` numbers the lives and state epochs of a
    share-partition; nothing is carried from one to the next. `gone`: the share-partition was deleted by the window's
    end; it has no lag there, and no windows until it is written again. `deleted` are rows of `deletions`. Without them
    every window with a tombstone counts as a deletion, even if the share-partition was created again in it.

    `ends`: what is known of the logs' ends. `last_lag` is the lag at the window's end, or a lower bound of it
    (`with_log_ends`). `lag` is the same if the end of the log was seen within the hour before, else null.
    """
    step = F.expr(f"interval {window_s} seconds")
    marked = _with_eras(windows, deleted)
    if end is None:
        marked = marked.crossJoin(F.broadcast(windows.agg(F.max("window").alias("last"))))
    else:
        marked = marked.withColumn("last", F.lit(end) - step)
    every = _with_idle(marked, step, begin)
    has_row = F.col("at") == F.col("window")
    # Not a frame of one hour: Spark would go through the whole frame again for each row.
    so_far = Window.partitionBy(*KEY, "era").orderBy("at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    carried = dict.fromkeys((*GAUGES, *_OF_LAG))
    values = {name: F.when(has_row & F.col(name).isNotNull(), F.struct("at", name)) for name in carried}
    known = every.select(
        *KEY,
        F.col("at").alias("window"),
        *(F.when(has_row, F.coalesce(name, F.lit(0))).otherwise(0).alias(name) for name in COUNTS),
        *(F.last(value, ignorenulls=True).over(so_far).alias(name) for name, value in values.items()),
        "era",
        "gone",
    )
    plain = known.select(
        *KEY, "window", *COUNTS, "era", "gone", *(F.col(name)[name].alias(name) for name in _OF_LAG),
        *(_still_shown(name).alias(f"shown_{name}") for name in GAUGES),
    )  # fmt: skip
    lagging = with_log_ends(plain, ends, window_s)
    lately = F.col("window").cast("long") - F.col("lag_seen_at").cast("long") <= _CARRIED_S
    return lagging.select(
        *KEY, "window", *COUNTS, *(F.col(f"shown_{name}").alias(name) for name in GAUGES),
        F.when(lately, F.col("lag")).alias("lag"), F.col("lag").alias("last_lag"), "lag_least", "era", "gone",
    )  # fmt: skip


def _still_shown(name: str) -> Column:
    """A gauge from a struct of time and value; null when the value is older than an hour."""
    age_s = F.col("window").cast("long") - F.col(name)["at"].cast("long")
    return F.when(age_s <= _CARRIED_S, F.col(name)[name])


def last_known(name: str) -> Column:
    """The last known value of a gauge of `fill_windows`, however old, within one life and state epoch."""
    return F.last(name, ignorenulls=True).over(_so_far(*KEY, "era"))


def with_delayed(filled: DataFrame, replay: DataFrame, window_s: int = 60) -> DataFrame:
    """Rows of `fill_windows` with `delayed`: the records that are still delayed at the window's end (PM-88).

    `replay`: rows of `replay_windows` for the same windows. `delayed` is null where it is unknown.
    """
    replayed = replay.select(*KEY, "window", F.struct("waits").alias("replayed"))
    newest_waits = F.last("replayed", ignorenulls=True).over(_so_far(*KEY, "era"))["waits"]
    joined = filled.join(replayed, [*KEY, "window"], "left").withColumn("waits", newest_waits)
    end = F.col("window") + F.expr(f"interval {window_s} seconds")
    later = F.transform(F.filter("waits", lambda one: one["until"] > end), lambda one: one["records"])
    number = F.aggregate(later, F.lit(0).cast("bigint"), lambda total, one: total + one)
    return joined.withColumn("delayed", F.when(~F.col("gone"), number)).drop("replayed", "waits")


def stalls(filled: DataFrame, members: DataFrame | None = None, stall_after_s: int = STALL_AFTER_S) -> DataFrame:
    """Windows at whose end a share-partition had lag and had finished nothing for `stall_after_s` (PM-61).

    `members` are rows of `group_windows`: share-partitions of a group without live members are `abandoned`, not
    `stalled`. Without `members` every group is assumed to have some. `still_s`: seconds since the latest window in
    which a record was finished, there was no lag, or the lag was unknown. So a record that arrives after the group has
    caught up does not count as a stall at once. With the column `delayed` (`with_delayed`), a share-partition whose
    whole lag is delayed is not stalled, and its time is counted from the end of the delay.
    """
    of_era = _so_far(*KEY, "era")
    delayed = F.coalesce("delayed", F.lit(0)) if "delayed" in filled.columns else F.lit(0)
    lagging = filled.withColumn("lag", F.col("last_lag")).withColumn("due", F.col("lag") - delayed)
    # A window where it is unknown whether anything was due also resets the time: a standstill must be seen to last.
    nothing_due = F.coalesce(F.col("due") <= 0, F.lit(True))
    moved_at = F.max(F.when((F.col("finished_count") > 0) | nothing_due, F.col("window"))).over(of_era)
    moved = F.coalesce(moved_at, F.min("window").over(of_era))
    lagging = lagging.withColumn("still_s", F.col("window").cast("long") - moved.cast("long"))
    standing = lagging.where((F.col("due") > 0) & (F.col("finished_count") == 0)).select(*_SHOWN)
    if members is None:
        return standing.where(F.col("still_s") >= stall_after_s).withColumn("kind", F.lit("stalled"))
    kind = F.when(F.coalesce("live", F.lit(1)) > 0, "stalled").otherwise("abandoned")
    late = (F.col("still_s") >= stall_after_s) | (kind == "abandoned")
    joined = standing.join(_live(standing, members), ["group_id", "window"], "left")
    return joined.withColumn("kind", kind).where(late).select(*_SHOWN, "kind")


def episodes(standing: DataFrame, window_s: int = 60) -> DataFrame:
    """One row for each standstill, an unbroken run of windows in rows of `stalls` (PM-90).

    `since`: the window in which something was last finished, or nothing was due.
    `until`: the end of its last window. `lag`: the largest lag in it; `lag_least`: that is only a lower bound.
    """
    of_kind = Window.partitionBy(*KEY, "kind").orderBy("window")
    step = F.col("window").cast("long") - F.lag("window").over(of_kind).cast("long")
    begins = F.when(F.coalesce(step > window_s, F.lit(True)), 1).otherwise(0)
    numbered = standing.withColumn("episode", F.sum(begins).over(of_kind))
    since_s = F.min_by(F.col("window").cast("long") - F.col("still_s"), "window")
    return numbered.groupBy(*KEY, "kind", "episode").agg(
        F.timestamp_seconds(since_s).alias("since"),
        (F.max("window") + F.expr(f"interval {window_s} seconds")).alias("until"),
        F.max("lag").alias("lag"),
        F.max_by("lag_least", F.struct("lag", "lag_least")).alias("lag_least"),
    ).drop("episode")  # fmt: skip


_SHOWN: Final = (*KEY, "window", "lag", "lag_least", "still_s")


def _with_eras(windows: DataFrame, deleted: DataFrame | None) -> DataFrame:
    """Rows of `progress` with `gone` and `era`, see `fill_windows`."""
    if deleted is None:
        marked = windows.withColumn("gone", F.col("tombstones") > 0)
    else:
        ends = deleted.select(*KEY, "window", F.lit(True).alias("gone"))
        marked = windows.join(ends, [*KEY, "window"], "left").withColumn("gone", F.coalesce("gone", F.lit(False)))
    of_key = _by_window(*KEY)
    recreated = F.lag("gone", 1, False).over(of_key) | ((F.col("tombstones") > 0) & ~F.col("gone"))
    earlier = of_key.rowsBetween(Window.unboundedPreceding, -1)
    other_epoch = F.col("state_epoch") != F.last("state_epoch", ignorenulls=True).over(earlier)
    reset = F.coalesce(other_epoch, F.lit(False)) | (F.col("state_epoch_resets") > 0)
    begins = marked.withColumn("begins", F.when(recreated | reset, 1).otherwise(0))
    return begins.withColumn("era", F.sum("begins").over(_so_far(*KEY)))


def _with_idle(marked: DataFrame, step: Column, begin: datetime | None) -> DataFrame:
    """Each row once for its own window and once for each idle one after it. `at`: that window. `window`: its own."""
    next_one = F.col("window") + step
    first = next_one if begin is None else F.greatest(next_one, F.lit(begin))
    through = F.coalesce(F.lead("window").over(_by_window(*KEY)) - step, F.col("last"))
    bounded = marked.withColumn("first", first).withColumn("through", through)
    idle = F.when(~F.col("gone") & (F.col("first") <= F.col("through")), F.sequence("first", "through", step))
    none = F.array().cast("array<timestamp>")
    each = F.explode(F.concat(F.array("window"), F.coalesce(idle, none)))
    return bounded.select(*KEY, "era", "gone", "window", *COUNTS, *dict.fromkeys((*GAUGES, *_OF_LAG)), each.alias("at"))


def _live(standing: DataFrame, members: DataFrame) -> DataFrame:
    """How many members each group had at the end of each window in `standing`; null where that is unknown."""
    asked = standing.select("group_id", "window", F.lit(None).cast("bigint").alias("live")).distinct()
    known = members.select("group_id", "window", F.col("members").cast("bigint").alias("live"))
    at_each = asked.unionByName(known).groupBy("group_id", "window").agg(F.max("live").alias("live"))
    return at_each.withColumn("live", F.last("live", ignorenulls=True).over(_so_far("group_id")))


def _by_window(*partition: str) -> WindowSpec:
    return Window.partitionBy(*partition).orderBy("window")


def _so_far(*partition: str) -> WindowSpec:
    return _by_window(*partition).rowsBetween(Window.unboundedPreceding, Window.currentRow)
