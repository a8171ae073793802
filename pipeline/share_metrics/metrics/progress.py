"""The progress of share-partitions: offsets, acknowledgements, lag, and the cost of writing.

Computed from persisted fields alone, without a replay (PM-40…PM-46, PM-50, PM-52, PM-53, PM-59, PM-60).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import KEY, at_least_0, ratio
from share_metrics.metrics.replaying import measure
from share_metrics.replay.measuring import Part
from share_metrics.replay.progress_rows import COUNTS, NEWEST, NULLABLE

_COLUMNS = (*COUNTS, *NULLABLE, *NEWEST, "done_at", "hwm_at")


def progress(rows: DataFrame, window_s: int = 60) -> DataFrame:
    """One row for each share-partition and window in which something was written.

    `done` is P = start offset + delivery-complete count: how many records are finished. It should never fall within one
    state epoch; a fall is counted in `anomalies`. Nothing is carried across a state epoch or a tombstone. Counts of
    acknowledgements are null where leaders recorded none.
    """
    return progress_of(measure(rows, window_s, parts=Part.PROGRESS), window_s)


def progress_of(found: DataFrame, window_s: int = 60) -> DataFrame:
    """`progress`, from the result of `measure` for windows of `window_s` seconds."""
    counted = found.where("steps is not null").select(*KEY, "steps.window", *(f"steps.{name}" for name in _COLUMNS))
    lag = F.col("hwm") - F.col("done")
    finished = F.col("finished_count")
    return counted.select(
        "*",
        (F.col("spso_delta") / window_s).alias("spso_rate"),
        (finished / window_s).alias("finished_rate"),
        (F.col("writes") / window_s).alias("write_rate"),
        at_least_0(lag).alias("lag"),
        at_least_0(F.col("speo") - F.col("spso")).alias("in_flight_width"),
        ratio(F.col("redelivered_lb"), F.col("finished_known")).alias("redelivery_ratio"),
        ratio(F.col("updates"), F.col("snapshots")).alias("update_snapshot_ratio"),
        ratio(F.col("cold_snapshots"), F.col("snapshots") + F.col("cold_snapshots")).alias("cold_share"),
        ratio(F.col("entries"), finished).alias("entries_per_finished"),
        ratio(F.col("bytes"), finished).alias("bytes_per_finished"),
        ratio(F.col("snapshot_batches"), F.col("update_batches")).alias("snapshot_update_batches"),
        (F.col("falls") + F.when(lag < 0, 1).otherwise(0)).alias("anomalies"),
    ).drop("falls")
