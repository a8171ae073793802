"""Where each log ended, as far as it was seen: by samples, and by the append times of its batches (PM-95).

Both say the same: the end of what is stored. A batch also says when the log got that far, so the end at any time up to
which the batches were read is known exactly, even if no sample was taken for hours.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

LOG: Final = ("topic_id", "partition")
#: The last sample of a window, and the first one after it.
SAMPLE: Final = (
    "struct<sampled_at:timestamp,high_watermark:bigint,log_start_offset:bigint,next_at:timestamp,next_end:bigint>"
)
#: The end of the log by its batches, and the time up to which that is exact.
APPENDED: Final = "struct<log_end:bigint,exact_until:timestamp>"
#: Comes before every window: what is known of a log before anything of it was seen.
_AT_FIRST: Final = 0
_BATCHES: Final = ("batch", "marker")


class LogEnds(NamedTuple):
    """What is known of the logs' ends, and `until`, the time up to which all rows were read; None: no limit.

    `marks`: one row for each log and window in which something was seen of it, with the structs `log` (SAMPLE) and
    `appended` (APPENDED), either of them null; the window of the row is the first one for which it holds.
    """

    marks: DataFrame | None = None
    until: datetime | None = None


def known_ends(
    samples: DataFrame | None,
    batches: DataFrame | None = None,
    window_s: int = 60,
    until: datetime | None = None,
    begin: datetime | None = None,
) -> LogEnds:
    """What samples of `log_ends` and rows of `log_meta` show of the logs' ends, for windows of `window_s` seconds.

    Samples and batches after `until` are left out, since what was finished by then is unknown. Windows before `begin`
    are one.
    """
    marks = None
    if samples is not None:
        samples = samples.where("high_watermark is not null")
        if until is not None:
            samples = samples.where(F.col("sampled_at") <= F.lit(until))
        marks = _sampled(samples, window_s)
    if batches is not None:
        appended = _appended(batches, samples, window_s, until, begin)
        marks = appended if marks is None else marks.join(appended, [*LOG, "window"], "full")
    if marks is not None:
        missing = {"log": SAMPLE, "appended": APPENDED}
        marks = marks.select(
            *LOG, "window",
            *(F.col(name) if name in marks.columns else F.lit(None).cast(kind).alias(name)
              for name, kind in missing.items()),
        )  # fmt: skip
    return LogEnds(marks, until)


def _sampled(samples: DataFrame, window_s: int) -> DataFrame:
    """The last sample of each window, with the first one of the next window that has any."""
    sample = F.struct("sampled_at", "high_watermark", "log_start_offset")
    by_window = samples.withColumn("window", F.window("sampled_at", f"{window_s} seconds").start)
    found = by_window.groupBy(*LOG, "window").agg(
        F.min_by(sample, "sampled_at").alias("first"), F.max_by(sample, "sampled_at").alias("last")
    )
    following = F.lead("first").over(Window.partitionBy(*LOG).orderBy("window"))
    each = found.withColumn("next", following).select(*LOG, "window", "last", "next")
    none = F.lit(None).cast("struct<sampled_at:timestamp,high_watermark:bigint,log_start_offset:bigint>")
    at_first = found.groupBy(*LOG).agg(F.min_by("first", "window").alias("next")).select(
        *LOG, F.timestamp_seconds(F.lit(_AT_FIRST)).alias("window"), none.alias("last"), "next"
    )  # fmt: skip
    both = each.unionByName(at_first)
    return both.select(
        *LOG, "window",
        F.struct("last.*", F.col("next.sampled_at").alias("next_at"), F.col("next.high_watermark").alias("next_end"))
        .cast(SAMPLE).alias("log"),
    )  # fmt: skip


def _appended(
    batches: DataFrame,
    samples: DataFrame | None,
    window_s: int,
    until: datetime | None,
    begin: datetime | None,
) -> DataFrame:
    """The end of each log by its batches, at the end of each window in which some were appended.

    Time is event time (PM-7): a batch counts from the largest time of the batches up to it. So the log ends at the
    first offset of the batches of later windows, or at the end of the last batch. If these differ, batches between them
    were gone before they were read, and the end is only a lower bound from the last batch on. After the newest batch,
    the end is exact up to the last sample that shows no more than what was read.
    """
    read = batches.where(
        F.col("record_type").isin(*_BATCHES) & F.col("log_end_offset").isNotNull() & F.col("ts").isNotNull()
    )
    late = F.lit(False) if until is None else F.col("ts") > F.lit(until)
    floor = F.timestamp_seconds(
        F.lit(_AT_FIRST + window_s) if begin is None else F.lit(int(begin.timestamp()) - window_s)
    )
    window = F.greatest(F.window("ts", f"{window_s} seconds").start, floor)
    low = F.coalesce("base_offset", "log_end_offset")
    found = read.withColumn("window", window).groupBy(*LOG, "window").agg(
        F.max(F.when(~late, F.col("log_end_offset"))).alias("top"),
        F.min(F.when(~late, low)).alias("low"),
        F.max(F.when(~late, F.col("ts"))).alias("at"),
        F.max("log_end_offset").alias("read_to"),
        F.max(late).alias("late"),
    )  # fmt: skip
    whole = Window.partitionBy(*LOG)
    order = whole.orderBy("window")
    found = found.withColumns({"read_to": F.max("read_to").over(whole), "late": F.max("late").over(whole)})
    found = found.where("top is not null").withColumns(
        {
            "top": F.max("top").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)),
            "next_low": F.min("low").over(order.rowsBetween(1, Window.unboundedFollowing)),
            "next_window": F.lead("window").over(order),
        }
    )
    found = _with_complete(found, samples, until)
    last = F.col("next_window").isNull()
    exact = F.when(last, F.greatest("at", "complete")).when(F.col("next_low") <= F.col("top"), F.col("next_window"))
    each = found.select(
        *LOG, "window",
        F.struct(F.least("top", "next_low").alias("log_end"), F.coalesce(exact, "at").alias("exact_until"))
        .cast(APPENDED).alias("appended"),
    )  # fmt: skip
    # If the first batch is the log's first one, the log was empty before it.
    first = found.groupBy(*LOG).agg(F.min("low").alias("low"), F.min("window").alias("until")).where("low = 0").select(
        *LOG, F.timestamp_seconds(F.lit(_AT_FIRST)).alias("window"),
        F.struct(F.lit(0).alias("log_end"), F.col("until").alias("exact_until")).cast(APPENDED).alias("appended"),
    )  # fmt: skip
    return each.unionByName(first)


def _with_complete(found: DataFrame, samples: DataFrame | None, until: datetime | None) -> DataFrame:
    """The rows with `complete`: the time up to which all batches of the log were read; null if that is not known."""
    if samples is not None:
        ends = samples.select(*LOG, F.col("high_watermark").alias("sampled"), "sampled_at")
        read_to = found.select(*LOG, "read_to").distinct()
        complete = read_to.join(ends, [*LOG]).where("sampled <= read_to")
        found = found.join(complete.groupBy(*LOG).agg(F.max("sampled_at").alias("complete")), [*LOG], "left")
    else:
        found = found.withColumn("complete", F.lit(None).cast("timestamp"))
    if until is None:
        return found
    return found.withColumn("complete", F.when(F.col("late"), F.lit(until)).otherwise(F.col("complete")))
