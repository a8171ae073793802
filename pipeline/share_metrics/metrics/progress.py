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


_OF_A_WRITE = ("n_accept", "n_release", "n_reject", "n_timeout", "n_limit", "max_dc", "sum_dc")
#: What is computed from; the batches of states, most of the bytes, are only counted.
_NEEDED = (
    "stream", "entry_id", *ORDER, "ts", "record_type", "bytes", "error", *KEY, "state_epoch", "leader_epoch",
    "generation", "write_id", "start_offset", "delivery_complete_count", "create_ts", "write_ts", "cause", "hwm",
    "speo", *_OF_A_WRITE,
)  # fmt: skip


def _states(rows: DataFrame) -> DataFrame:
    """Share-state records, with an absent state epoch and start offset filled in from earlier records of their era.

    The counters of a write that is stored again are null (PM-34).
    """
    slim = rows.select(*_NEEDED, F.coalesce(F.size("state_batches"), F.lit(0)).alias("batches"))
    records = timed(slim).where(F.col("record_type").isin("snapshot", "update", "tombstone"))
    live = F.col("record_type") != "tombstone"
    ended = F.sum(F.when(~live, 1).otherwise(0)).over(before(*KEY))
    numbered = records.select(
        "*", F.row_number().over(in_order(*KEY)).alias("number"), F.coalesce(ended, F.lit(0)).alias("life")
    )
    lives = numbered.withColumns(
        {
            "state_epoch": F.last("state_epoch", ignorenulls=True).over(so_far(*KEY, "life")),
            "repeated": is_repeated(*KEY, "life"),
            "cold": is_cold() & live,
        }
    )
    of_era = so_far(*KEY, "life", "state_epoch")
    eras = lives.withColumns(
        {
            "spso": F.when(live, F.last("start_offset", ignorenulls=True).over(of_era)),
            "era": F.first("number").over(of_era),
            **{name: F.when(~F.col("repeated"), F.col(name)) for name in _OF_A_WRITE},
        }
    )
    complete = F.greatest(F.coalesce("delivery_complete_count", F.lit(0)), F.lit(0))
    return eras.withColumn("done", F.col("spso") + complete)


def _steps(states: DataFrame) -> DataFrame:
    """The change from the record before within the same era, and resets between eras (PM-59)."""
    era = in_order(*KEY, "life", "state_epoch")
    life = in_order(*KEY, "life")
    led = F.last("leader_epoch", ignorenulls=True).over(before(*KEY, "life"))
    stepped = states.withColumns(
        {
            "spso_step": F.col("spso") - F.lag("spso").over(era),
            "done_step": F.col("done") - F.lag("done").over(era),
            "finished_here": _finished_here(),
            "redelivered_here": _redelivered_here(),
        }
    )
    reset = stepped.withColumns(
        {
            "reset": F.lag("state_epoch").over(life) != F.col("state_epoch"),
            "led_anew": F.col("leader_epoch") > led,
        }
    )
    return reset.withColumn("jump", F.when(F.col("reset"), F.col("spso") - F.lag("spso").over(life)))


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
    batches = F.col("batches")
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


_TOLD = (
    ("n_accept", "ack_accept"),
    ("n_release", "ack_release"),
    ("n_reject", "ack_reject"),
    ("n_timeout", "timeout_count"),
    ("n_limit", "limit_archived_count"),
)


def _newest() -> list[Column]:
    """The newest values of the newest state; values of an earlier life or state epoch do not count."""
    # Numbers instead of structs: with buffers of a fixed size Spark aggregates in a hash map, else it sorts.
    now = F.max_by("era", F.when(F.col("record_type") != "tombstone", F.col("number")))

    def of_now(value: str, name: str, told: str) -> Column:
        at = F.when(F.col(told).isNotNull(), F.col("number"))
        return F.when(F.max_by("era", at).eqNullSafe(now), F.max_by(value, at)).alias(name)

    return [
        *(of_now(name, name, name) for name in ("spso", "done", "hwm", "speo", "state_epoch")),
        *(of_now("event_time", f"{name}_at", name) for name in ("done", "hwm")),
    ]
