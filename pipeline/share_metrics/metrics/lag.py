"""Lag, from the writes of leaders and from where logs were seen to end, in records and in seconds (PM-42, PM-95)."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import KEY, at_least_0
from share_metrics.metrics.known_ends import APPENDED, LOG, SAMPLE, LogEnds
from share_metrics.replay.progress_rows import FRESH_S


def with_log_ends(windows: DataFrame, ends: LogEnds | None, window_s: int = 60) -> DataFrame:
    """Rows of `progress` or `fill_windows` with the `lag` at each window's end, `lag_least` and `lag_seen_at`.

    In the window in which the time `ends.until` is, it is the lag at that time instead. The end of the log is the
    greatest of the newest high watermark that a leader wrote (`hwm`, at `hwm_at`), of the last sample before then, and
    of the batches appended before then. `lag_seen_at` is the latest time up to which one of them is known to be the
    end: of a batch the time up to which the batches were read, and if a later sample shows the same end as all of them,
    the time of that sample. The lag is the end of the log less the finished records (`done`, at `done_at`).

    Logs only grow, so an old value above 0 is still a lower bound: `lag_least` marks values that were seen more than
    FRESH_S before. A lag of 0 is given only if it was seen within that time; otherwise the lag is null. While the start
    offset is not set, the lag is null, as in KIP-1226, or 0 if the log is then empty. If a sampled high watermark is
    below records that were finished before it, the lag is 0, and `anomalies` counts this if that column exists. Without
    `ends`, only the writes of leaders are used. Share-partitions that are `gone` have no lag.
    """
    ends = ends or LogEnds()
    joined = _with_marks(windows, ends.marks)
    then = _end(window_s)
    if ends.until is not None:
        then = F.when(F.col("window") < F.lit(ends.until), F.least(then, F.lit(ends.until))).otherwise(then)
    # `greatest` and `least` skip nulls.
    hwm = F.greatest("hwm", "log.high_watermark", "appended.log_end")
    appended = F.when(F.col("appended.exact_until").isNotNull(), F.least(then, "appended.exact_until"))
    seen = F.greatest("hwm_at", "log.sampled_at", appended)
    seen = F.when(hwm == F.col("log.next_end"), F.greatest(seen, F.least(then, "log.next_at"))).otherwise(seen)
    joined = joined.withColumns({"log_end": hwm, "lag_seen_at": seen})
    fresh = F.col("lag_seen_at") >= then - F.expr(f"interval {FRESH_S} seconds")
    raw = F.col("log_end") - F.col("done")
    empty = fresh & (F.col("log_end") <= F.col("log.log_start_offset"))
    none = F.lit(0).cast("bigint")
    value = (
        F.when(F.col("done").isNull(), F.when(empty, none))
        .when(raw > 0, raw)
        .when(fresh & ((raw == 0) | (F.col("lag_seen_at") >= F.col("done_at"))), none)
    )
    there = ~F.col("gone") if "gone" in windows.columns else F.lit(True)
    found = joined.withColumn("lag", F.when(there, value)).withColumn(
        "lag_least", F.coalesce((F.col("lag") > 0) & ~fresh, F.lit(False))
    )
    if "anomalies" in windows.columns:
        # If a leader wrote a high watermark, `progress` has already checked it.
        sampled = F.col("hwm").isNull() & (F.col("log.sampled_at") >= F.greatest("window", "done_at"))
        found = found.withColumn("anomalies", F.col("anomalies") + F.when(sampled & (raw < 0), 1).otherwise(0))
    return found.drop("log", "appended", "log_end")


def _with_marks(windows: DataFrame, marks: DataFrame | None) -> DataFrame:
    """The rows with `log` and `appended`, the last ones up to the window's end, however old (`LogEnds`)."""
    if marks is None:
        none = {"log": F.lit(None).cast(SAMPLE), "appended": F.lit(None).cast(APPENDED)}
        return windows.withColumns(none)
    # Each mark joins the rows of all share-partitions of its log. Marks of windows without a row are dropped.
    of_keys = windows.select(*KEY).distinct().join(marks, [*LOG]).select(*KEY, "window", "log", "appended")
    every = windows.withColumn("is_row", F.lit(True)).join(of_keys, [*KEY, "window"], "full")
    so_far = Window.partitionBy(*KEY).orderBy("window").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    last = every.withColumns({name: F.last(name, ignorenulls=True).over(so_far) for name in ("log", "appended")})
    return last.where("is_row").select(*windows.columns, "log", "appended")


def lag_seconds(
    windows: DataFrame, log_meta: DataFrame, window_s: int = 60, until: datetime | None = None
) -> DataFrame:
    """Rows of `progress` with `lag_seconds`: the age, at the window's end, of the batch that contains the start offset.

    It is 0 without lag, and null where the lag or the batch is unknown. `until`: the time up to which all was read; in
    its window it is the age at that time.
    """
    batches = log_meta.where("record_type = 'batch'").select(
        *LOG, "base_offset", "last_offset", F.col("ts").alias("at")
    )
    lagging = windows.where("lag > 0").select(*KEY, "window", "spso")
    holds = (F.col("base_offset") <= F.col("spso")) & (F.col("spso") <= F.col("last_offset"))
    # If a later leader wrote a former leader's batch again, its first time is used.
    found = lagging.join(batches, [*LOG]).where(holds).groupBy(*KEY, "window").agg(F.min("at").alias("written"))
    then = _end(window_s) if until is None else F.least(_end(window_s), F.greatest("window", F.lit(until)))
    age = then.cast("double") - F.col("written").cast("double")
    value = F.when(F.col("lag") == 0, F.lit(0.0)).when(F.col("lag") > 0, at_least_0(age))
    return windows.join(found, [*KEY, "window"], "left").withColumn("lag_seconds", value).drop("written")


def _end(window_s: int) -> Column:
    return F.col("window") + F.expr(f"interval {window_s} seconds")
