"""The progress of share-partitions: offsets, acknowledgements, lag, and the cost of writing.

Computed from persisted fields alone, without a replay (PM-40…PM-46, PM-50, PM-52, PM-53, PM-59, PM-60).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from .common import (
    KEY,
    LETTERS,
    ORDER,
    at_least_0,
    before,
    in_order,
    is_cold,
    is_repeated,
    newest,
    ratio,
    so_far,
    timed,
    windowed,
)


def latest_state(rows: DataFrame) -> DataFrame:
    """The newest state of every share-partition that has one; a tombstone ends its state (PM-30)."""
    states = _states(rows)
    newest_row = states.groupBy(*KEY).agg(
        F.max_by(F.struct(*_LATEST), F.struct("epoch", "seq")).alias("state")
    )  # fmt: skip
    return newest_row.where("state.record_type != 'tombstone'").select(*KEY, "state.*").drop("record_type")


_LATEST = ("record_type", "event_time", "state_epoch", "spso", "done", "hwm", "speo")


def progress(rows: DataFrame, window_s: int = 60) -> DataFrame:
    """One row for each share-partition and window in which something was written.

    `done` is P = start offset + delivery-complete count: how many records are finished. It should never fall within one
    state epoch; a fall counts in `anomalies`. Nothing is carried across a state epoch or a tombstone. Counts of
    acknowledgements are null where leaders recorded none.
    """
    counted = windowed(_steps(_states(rows)), window_s).groupBy(*KEY, "window").agg(*_counts(), *_newest())
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


def _states(rows: DataFrame) -> DataFrame:
    """Share-state records, with an absent state epoch and start offset filled in from earlier records of their era.

    The counters of a write that is stored again are null (PM-34).
    """
    records = timed(rows).where(F.col("record_type").isin("snapshot", "update", "tombstone"))
    ended = F.sum(F.when(F.col("record_type") == "tombstone", 1).otherwise(0)).over(before(*KEY))
    lives = records.withColumn("life", F.coalesce(ended, F.lit(0)))
    eras = lives.withColumn("state_epoch", F.last("state_epoch", ignorenulls=True).over(so_far(*KEY, "life")))
    start = F.last("start_offset", ignorenulls=True).over(so_far(*KEY, "life", "state_epoch"))
    live = F.col("record_type") != "tombstone"
    complete = F.greatest(F.coalesce("delivery_complete_count", F.lit(0)), F.lit(0))
    marked = (
        eras.withColumn("spso", F.when(live, start))
        .withColumn("done", F.col("spso") + complete)
        .withColumn("cold", is_cold() & live)
        .withColumn("repeated", is_repeated(*KEY, "life"))
    )
    return marked.withColumns({name: F.when(~F.col("repeated"), F.col(name)) for name in _OF_A_WRITE})


def _steps(states: DataFrame) -> DataFrame:
    """The change from the record before within the same era, and resets between eras (PM-59)."""
    era = in_order(*KEY, "life", "state_epoch")
    life = in_order(*KEY, "life")
    led = F.last("leader_epoch", ignorenulls=True).over(before(*KEY, "life"))
    reset = F.lag("state_epoch").over(life) != F.col("state_epoch")
    return (
        states.withColumn("spso_step", F.col("spso") - F.lag("spso").over(era))
        .withColumn("done_step", F.col("done") - F.lag("done").over(era))
        .withColumn("reset", reset)
        .withColumn("jump", F.when(reset, F.col("spso") - F.lag("spso").over(life)))
        .withColumn("led_anew", F.col("leader_epoch") > led)
        .withColumn("finished_here", _finished_here())
        .withColumn("redelivered_here", _redelivered_here())
    )


def _finished_here() -> Column:
    """How many records a write finished, by its statistics (X3); null for a write without them."""
    finished = [F.coalesce(name, F.lit(0)) for name in ("n_accept", "n_reject", "n_limit")]
    told = F.coalesce("n_accept", "n_reject", "n_limit").isNotNull()
    return F.when(told & ~F.col("cold"), finished[0] + finished[1] + finished[2])


def _redelivered_here() -> Column:
    """Of those, how many were delivered more than once, by X4: exact up to 2 deliveries, else a lower bound.

    A record with a dead letter is in n_reject or n_limit of one write and in sum_dc of a later one, after its letter;
    nothing can be said of that one, and the earlier one seems to have had fewer deliveries.
    """
    extra = F.col("sum_dc") - _finished_here()
    known = F.when(F.col("max_dc") > 1, F.ceil(extra / (F.col("max_dc") - 1))).when(F.col("max_dc").isNotNull(), 0)
    letters = F.coalesce("cause", F.lit(0)).bitwiseAND(LETTERS) != 0
    return F.when(~F.col("cold"), F.greatest(F.when(letters, 0).otherwise(known), F.lit(0)))


def _counts() -> list[Column]:
    update = F.col("record_type") == "update"
    snapshot = F.col("record_type") == "snapshot"
    cold = F.col("cold")

    def rows_with(condition: Column, name: str) -> Column:
        return F.sum(F.when(condition, 1).otherwise(0)).alias(name)

    told = [F.sum(F.when(~cold, F.col(source))).alias(name) for source, name in _TOLD]
    batches = F.coalesce(F.size("state_batches"), F.lit(0))
    return [
        F.coalesce(F.sum("spso_step"), F.lit(0)).alias("spso_delta"),
        F.coalesce(F.sum("done_step"), F.lit(0)).alias("finished_count"),
        rows_with((update | snapshot) & ~cold & ~F.col("repeated"), "writes"),
        rows_with(update & ~cold, "updates"),
        rows_with(snapshot & ~cold, "snapshots"),
        rows_with(snapshot & cold, "cold_snapshots"),
        F.count("*").alias("entries"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.when(snapshot, batches).otherwise(0)).alias("snapshot_batches"),
        F.sum(F.when(update, batches).otherwise(0)).alias("update_batches"),
        *told,
        F.sum("finished_here").alias("finished_known"),
        F.sum("redelivered_here").alias("redelivered_lb"),
        rows_with(F.coalesce("reset", F.lit(False)), "state_epoch_resets"),
        F.sum("jump").alias("reset_jump"),
        rows_with(F.coalesce("led_anew", F.lit(False)), "leader_epoch_changes"),
        rows_with(F.coalesce(F.col("done_step") < 0, F.lit(False)), "falls"),
        rows_with(F.col("record_type") == "tombstone", "tombstones"),
    ]


_OF_A_WRITE = ("n_accept", "n_release", "n_reject", "n_timeout", "n_limit", "max_dc", "sum_dc")
_TOLD = (
    ("n_accept", "ack_accept"),
    ("n_release", "ack_release"),
    ("n_reject", "ack_reject"),
    ("n_timeout", "timeout_count"),
    ("n_limit", "limit_archived_count"),
)


def _newest() -> list[Column]:
    """The newest values of the newest state; values of an earlier life or state epoch do not count."""
    era = F.struct("life", "state_epoch")
    now = F.max_by(era, F.when(F.col("record_type") != "tombstone", F.struct(*ORDER)))

    def of_now(name: str) -> Column:
        told = F.max_by(era, F.when(F.col(name).isNotNull(), F.struct(*ORDER)))
        return F.when(told.eqNullSafe(now), newest(name)).alias(name)

    def time_of(name: str) -> Column:
        told = F.struct(era.alias("era"), "event_time")
        at = F.max_by(told, F.when(F.col(name).isNotNull(), F.struct(*ORDER)))
        return F.when(at["era"].eqNullSafe(now), at["event_time"]).alias(f"{name}_at")

    return [
        *(of_now(name) for name in ("spso", "done", "hwm", "speo", "state_epoch")),
        *(time_of(name) for name in ("done", "hwm")),
    ]
