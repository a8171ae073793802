"""Windows in which nothing was written, and share-partitions that stand still in them (PM-31, PM-61)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from .common import KEY

#: Counts that are 0 in a window without records; every other number is a gauge.
COUNTS: Final = ("spso_delta", "finished_count", "writes", "updates", "snapshots", "cold_snapshots", "entries", "bytes")
GAUGES: Final = ("spso", "done", "hwm", "speo", "lag", "in_flight_width", "state_epoch")
_CARRIED_S: Final = 3_600


def fill_windows(windows: DataFrame, window_s: int = 60) -> DataFrame:
    """The columns of `progress` that make sense for idle windows too, for every window up to the last one of all.

    Counts are 0 there, gauges are carried forward for at most an hour, so that charts show idleness, not holes (PM-31).
    """
    step = F.expr(f"interval {window_s} seconds")
    last = windows.agg(F.max("window").alias("last"))
    spans = windows.groupBy(*KEY).agg(F.min("window").alias("first")).crossJoin(last)
    every = spans.select(*KEY, F.explode(F.sequence("first", "last", step)).alias("window"))
    joined = every.join(windows.select(*KEY, "window", *COUNTS, *GAUGES), [*KEY, "window"], "left")
    carried = Window.partitionBy(*KEY).orderBy("window").rowsBetween(-(_CARRIED_S // window_s), Window.currentRow)
    return joined.select(
        *KEY,
        "window",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in COUNTS),
        *(F.last(name, ignorenulls=True).over(carried).alias(name) for name in GAUGES),
    )


def stalls(filled: DataFrame, members: DataFrame | None = None, stall_after_s: int = 300) -> DataFrame:
    """Windows at whose end a share-partition had lag and had finished nothing for `stall_after_s` (PM-61).

    `members` are rows of `group_windows`; a group without live members is `abandoned`, not stalled. Without `members`
    every group counts as having some. `still_s`: seconds since something was last finished, within what is known.
    """
    of_key = Window.partitionBy(*KEY).orderBy("window").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    moved = F.coalesce(
        F.max(F.when(F.col("finished_count") > 0, F.col("window"))).over(of_key), F.min("window").over(of_key)
    )
    still = F.col("window").cast("long") - moved.cast("long")
    standing = filled.withColumn("still_s", still).where((F.col("lag") > 0) & (F.col("finished_count") == 0))
    if members is None:
        return standing.where(F.col("still_s") >= stall_after_s).select(*_SHOWN, F.lit("stalled").alias("kind"))
    known = members.select("group_id", F.col("window").alias("at"), F.col("members").alias("live"))
    by_then = F.col("at") <= F.col("window")
    newest_live = F.max_by(F.when(by_then, F.col("live")), F.when(by_then, F.col("at")))
    newest = standing.join(known, "group_id", "left").groupBy(*_SHOWN).agg(newest_live.alias("live"))
    kind = F.when(F.coalesce("live", F.lit(1)) > 0, "stalled").otherwise("abandoned")
    late = (F.col("still_s") >= stall_after_s) | (kind == "abandoned")
    return newest.withColumn("kind", kind).where(late).drop("live")


_SHOWN: Final = (*KEY, "window", "lag", "still_s")
