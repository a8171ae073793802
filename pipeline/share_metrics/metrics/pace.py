"""How much arrives and how much is finished in the same time (PM-89)."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from .common import KEY


def with_arrivals(filled: DataFrame, window_s: int, until: datetime) -> DataFrame:
    """Rows of `fill_windows` with `arrived`, and `seconds`: how long the window lasted before `until`.

    High watermarks are lag and what is finished: so what arrived is what the lag grew by, and what was finished. It is
    null unless the lag at both ends of the window is known, of one life and state epoch, and in windows after `until`.
    """
    grown = F.col("last_lag") - F.lag("last_lag").over(Window.partitionBy(*KEY, "era").orderBy("window"))
    left = F.lit(until.timestamp()) - F.col("window").cast("double")
    seconds = F.least(F.lit(float(window_s)), left)
    arrived = F.when(left > 0, grown + F.col("finished_count"))
    return filled.withColumn("arrived", arrived).withColumn("seconds", seconds)


def paces(arrivals: DataFrame) -> DataFrame:
    """One row for each share-partition: `arrived`, what was `done`, and `seconds`, of windows where all is known."""
    known = arrivals.where("arrived is not null")
    return known.groupBy(*KEY).agg(
        F.sum("arrived").alias("arrived"), F.sum("finished_count").alias("done"), F.sum("seconds").alias("seconds")
    )
