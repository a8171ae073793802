"""Lag, from the writes of leaders and from samples of log ends, in records and in seconds (PM-18, PM-42)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import KEY, at_least_0

_LOG: Final = ("topic_id", "partition")
#: How long, in seconds, the last known end of a log counts as current; at least two windows.
FRESH_S: Final = 180


def with_log_ends(windows: DataFrame, ends: DataFrame | None, window_s: int = 60) -> DataFrame:
    """Rows of `progress` or `fill_windows` with the `lag` at each window's end, `lag_least` and `lag_seen_at`.

    The high watermark is the greater of the newest one that a leader wrote (`hwm`, at `hwm_at`) and that of the last
    sample before the window's end; `lag_seen_at` is the later of both times. The lag is the high watermark less the
    finished records (`done`, at `done_at`). Logs only grow, so an old value above 0 is still a lower bound: `lag_least`
    marks values older than both FRESH_S and two windows. A lag of 0 is given only if it was seen within that time;
    otherwise the lag is null. While the start offset is not set, the lag is null, as in KIP-1226, or 0 if the log is
    then empty. If a sampled high watermark is below records that were finished before it, the lag is 0, and `anomalies`
    counts this if that column exists. Without `ends`, only the writes of leaders are used. Share-partitions that are
    `gone` have no lag.
    """
    joined = _with_samples(windows, ends, window_s)
    hwm = F.greatest("hwm", "log.high_watermark")  # if one of them is null, the other one
    seen = F.greatest("hwm_at", "log.sampled_at")
    since = _end(window_s) - F.expr(f"interval {max(2 * window_s, FRESH_S)} seconds")
    fresh = seen >= since
    raw = hwm - F.col("done")
    empty = (F.col("log.high_watermark") <= F.col("log.log_start_offset")) & (F.col("log.sampled_at") >= since)
    none = F.lit(0).cast("bigint")
    value = (
        F.when(F.col("done").isNull(), F.when(empty, none))
        .when(raw > 0, raw)
        .when(fresh & ((raw == 0) | (seen >= F.col("done_at"))), none)
    )
    there = ~F.col("gone") if "gone" in windows.columns else F.lit(True)
    found = joined.withColumn("lag", F.when(there, value)).withColumn(
        "lag_least", F.coalesce((F.col("lag") > 0) & ~fresh, F.lit(False))
    )
    if "anomalies" in windows.columns:
        # If a leader wrote a high watermark, `progress` has already checked it.
        sampled = F.col("hwm").isNull() & (F.col("log.sampled_at") >= F.greatest("window", "done_at"))
        found = found.withColumn("anomalies", F.col("anomalies") + F.when(sampled & (raw < 0), 1).otherwise(0))
    return found.withColumn("lag_seen_at", seen).drop("log")


def _with_samples(windows: DataFrame, ends: DataFrame | None, window_s: int) -> DataFrame:
    """The rows with `log`, the last sample before the window's end, however old."""
    if ends is None:
        return windows.withColumn("log", F.lit(None).cast(_SAMPLE))
    known = ends.where("high_watermark is not null")
    sampled = F.struct("sampled_at", "high_watermark", "log_start_offset")
    by_window = known.withColumn("window", F.window("sampled_at", f"{window_s} seconds").start)
    newest = by_window.groupBy(*_LOG, "window").agg(F.max_by(sampled, "sampled_at").alias("log"))
    # Each sample joins the rows of all share-partitions of its log. Samples in windows without a row are dropped.
    marks = windows.select(*KEY).distinct().join(newest, [*_LOG]).select(*KEY, "window", "log")
    every = windows.withColumn("is_row", F.lit(True)).join(marks, [*KEY, "window"], "full")
    so_far = Window.partitionBy(*KEY).orderBy("window").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    last = every.withColumn("log", F.last("log", ignorenulls=True).over(so_far))
    return last.where("is_row").select(*windows.columns, "log")


_SAMPLE: Final = "struct<sampled_at:timestamp,high_watermark:bigint,log_start_offset:bigint>"


def lag_seconds(windows: DataFrame, log_meta: DataFrame, window_s: int = 60) -> DataFrame:
    """Rows of `progress` with `lag_seconds`: the age, at the window's end, of the batch that contains the start offset.

    It is 0 without lag, and null where the lag or the batch is unknown.
    """
    batches = log_meta.where("record_type = 'batch'").select(
        *_LOG, "base_offset", "last_offset", F.col("ts").alias("at")
    )
    lagging = windows.where("lag > 0").select(*KEY, "window", "spso")
    holds = (F.col("base_offset") <= F.col("spso")) & (F.col("spso") <= F.col("last_offset"))
    # If a later leader wrote a former leader's batch again, its first time is used.
    found = lagging.join(batches, [*_LOG]).where(holds).groupBy(*KEY, "window").agg(F.min("at").alias("written"))
    age = _end(window_s).cast("double") - F.col("written").cast("double")
    value = F.when(F.col("lag") == 0, F.lit(0.0)).when(F.col("lag") > 0, at_least_0(age))
    return windows.join(found, [*KEY, "window"], "left").withColumn("lag_seconds", value).drop("written")


def _end(window_s: int) -> Column:
    return F.col("window") + F.expr(f"interval {window_s} seconds")
