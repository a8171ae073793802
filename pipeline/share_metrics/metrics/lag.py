"""Lag where leaders did not write it, and lag in seconds, from the topics' logs (PM-18, PM-42)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from .common import KEY, at_least_0

_LOG = ("topic_id", "partition")


def with_log_ends(windows: DataFrame, ends: DataFrame, window_s: int = 60) -> DataFrame:
    """Rows of `progress`, with `lag` from the last sample before the window's end where it was null.

    Samples older than two windows are not used. A high watermark below what is finished gives lag 0 and an anomaly.
    """
    close = _end(window_s)
    known = ends.where("high_watermark is not null").select(*_LOG, "sampled_at", "high_watermark")
    missing = windows.where("lag is null and done is not null").select(*KEY, "window", "done")
    fresh = (F.col("sampled_at") < close) & (F.col("sampled_at") >= close - F.expr(f"interval {2 * window_s} seconds"))
    found = missing.join(known, [*_LOG]).where(fresh).groupBy(*KEY, "window").agg(
        (F.max_by("high_watermark", "sampled_at") - F.first("done")).alias("sampled_lag")
    )  # fmt: skip
    joined = windows.join(found, [*KEY, "window"], "left")
    fall = F.when(F.col("sampled_lag") < 0, 1).otherwise(0)
    return (
        joined.withColumn("lag", F.coalesce("lag", at_least_0(F.col("sampled_lag"))))
        .withColumn("anomalies", F.col("anomalies") + fall)
        .drop("sampled_lag")
    )


def lag_seconds(windows: DataFrame, log_meta: DataFrame, window_s: int = 60) -> DataFrame:
    """Rows of `progress` with `lag_seconds`: the age, at the window's end, of the batch that has the start offset.

    0 without lag; null where the lag or the batch is unknown.
    """
    batches = log_meta.where("record_type = 'batch'").select(
        *_LOG, "base_offset", "last_offset", F.col("ts").alias("at")
    )
    behind = windows.where("lag > 0").select(*KEY, "window", "spso")
    holds = (F.col("base_offset") <= F.col("spso")) & (F.col("spso") <= F.col("last_offset"))
    # If a later leader wrote a former leader's batch again, its first time counts.
    found = behind.join(batches, [*_LOG]).where(holds).groupBy(*KEY, "window").agg(F.min("at").alias("written"))
    age = _end(window_s).cast("double") - F.col("written").cast("double")
    value = F.when(F.col("lag") == 0, F.lit(0.0)).when(F.col("lag") > 0, at_least_0(age))
    return windows.join(found, [*KEY, "window"], "left").withColumn("lag_seconds", value).drop("written")


def _end(window_s: int) -> Column:
    return F.col("window") + F.expr(f"interval {window_s} seconds")
