"""How many records arrive and how many are finished in the same time (PM-89)."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import KEY


def with_arrivals(filled: DataFrame, window_s: int, until: datetime) -> DataFrame:
    """Rows of `fill_windows` with `arrived`, and `seconds`: how much of the window is before `until`.

    A high watermark is the lag plus the finished records, so the arrivals are the growth of the lag plus the records
    finished in the window. `arrived` is null unless the lag is known at both ends of the window, within one life and
    state epoch. It is null, too, in windows after `until`.
    """
    grown = F.col("last_lag") - F.lag("last_lag").over(Window.partitionBy(*KEY, "era").orderBy("window"))
    left = F.lit(until.timestamp()) - F.col("window").cast("double")
    seconds = F.least(F.lit(float(window_s)), left)
    arrived = F.when(left > 0, grown + F.col("finished_count"))
    return filled.withColumn("arrived", arrived).withColumn("seconds", seconds)


def paces(arrivals: DataFrame) -> DataFrame:
    """One row for each share-partition: sums of records `arrived` and `done`, and of `seconds`.

    Only windows with known arrivals count.
    """
    known = arrivals.where("arrived is not null")
    return known.groupBy(*KEY).agg(
        F.sum("arrived").alias("arrived"), F.sum("finished_count").alias("done"), F.sum("seconds").alias("seconds")
    )
