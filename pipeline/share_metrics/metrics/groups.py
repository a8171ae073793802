"""Metrics of share groups: members, rebalances, churn, convergence (PM-54…PM-58). Excludes cold copies (CM-18)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import COLD, in_order, newest, so_far, timed, windowed

_MEMBER: Final = ("group_id", "member_id")
_REASONS: Final = ("left", "expired", "fenced", "admin")
_FLAPPING_S: Final = 300
_FLAPPING_JOINS: Final = 3
_CONVERGENCE: Final = "group_id string, assignment_epoch int, computed_at timestamp, convergence_ms bigint"


def group_windows(rows: DataFrame, window_s: int = 60) -> DataFrame:
    """One row for each group and window in which its log grew: members, state, joins, leaves, rebalances.

    `flapping` counts repeated joins: at least the third join of a client id from the same host within five minutes.
    """
    events = windowed(_events(rows), window_s)
    counted = events.groupBy("group_id", "window").agg(
        F.sum("join").alias("joins"),
        F.sum("leave").alias("leaves"),
        *(F.sum(F.when(F.col("reason") == reason, F.col("leave")).otherwise(0)).alias(f"leaves_{reason}")
          for reason in _REASONS),
        F.sum("flap").alias("flapping"),
        F.sum("rebalance").alias("rebalances"),
        F.count_distinct(F.when(~F.col("cold"), F.col("group_epoch"))).alias("epoch_bumps"),
        newest("members").alias("members"),
        F.avg("members").alias("members_mean"),
        F.max_by("group_gone", F.struct("epoch", "seq")).alias("group_gone"),
    )  # fmt: skip
    empty = F.when(F.col("members") > 0, "Stable").otherwise("Empty")
    churn = (F.col("joins") + F.col("leaves")) / F.col("members_mean")
    return counted.select(
        *(name for name in counted.columns if name != "group_gone"),
        F.when(F.col("group_gone"), "Dead").otherwise(empty).alias("state"),
        F.when(F.col("members_mean") > 0, churn).alias("churn_rate"),
        (F.col("rebalances") / window_s).alias("rebalance_rate"),
    )


def share_partition_counts(rows: DataFrame) -> DataFrame:
    """Initialised share-partitions of every group, by its newest `state` record (PM-56)."""
    states = rows.where("record_type = 'state'").groupBy("group_id").agg(
        F.max_by(F.struct("initialized", "tombstone"), F.struct("epoch", "seq")).alias("newest")
    )  # fmt: skip
    sizes = F.aggregate("newest.initialized", F.lit(0), lambda total, topic: total + F.size(topic["partitions"]))
    return states.where("not newest.tombstone").select("group_id", sizes.alias("share_partitions"))


def convergence(rows: DataFrame) -> DataFrame:
    """For each assignment epoch, the ms until all live members had reached it; null while they have not (PM-58)."""
    events = timed(rows).where("record_type in ('member', 'current', 'target_meta')")
    needed = events.select(
        "group_id", "member_id", "epoch", "seq", "record_type", "event_time", "tombstone", "cause", "member_epoch",
        "assignment_epoch",
    )  # fmt: skip
    return needed.groupBy("group_id").applyInArrow(_converged, _CONVERGENCE)


def _events(rows: DataFrame) -> DataFrame:
    """Group records, each with its event (a join, a leave or a rebalance) and the number of members after it."""
    kinds = ("member", "group", "target_meta", "deleted_group")
    records = timed(rows).where(F.col("record_type").isin(*kinds))
    cold = F.coalesce(F.col("cause"), F.lit(0)).bitwiseAND(COLD) != 0
    member = F.col("record_type") == "member"
    was_there = F.coalesce(~F.lag("tombstone").over(in_order("record_type", *_MEMBER)), F.lit(False))
    appears = member & ~F.col("tombstone") & ~was_there
    step = F.when(appears, 1).when(member & F.col("tombstone") & was_there, -1).otherwise(0)
    of_client = Window.partitionBy("group_id", "client_id", "client_host").orderBy(F.col("event_time").cast("long"))
    marked = (
        records.withColumn("cold", cold)
        .withColumn("step", step)
        .withColumn("join", F.when(appears & ~F.col("cold"), 1).otherwise(0))
        .withColumn("leave", F.when(member & F.col("tombstone"), 1).otherwise(0))
        .withColumn("rebalance", F.when(_rebalance(), 1).otherwise(0))
        .withColumn("group_gone", (F.col("record_type") == "group") & F.col("tombstone"))
    )
    counted = marked.withColumn("members", F.sum("step").over(so_far("group_id")))
    joined_lately = F.sum("join").over(of_client.rangeBetween(-_FLAPPING_S, 0))
    return counted.withColumn("flap", F.when((F.col("join") == 1) & (joined_lately >= _FLAPPING_JOINS), 1).otherwise(0))


def _converged(table: Any) -> Any:
    ordered = table.sort_by([("epoch", "ascending"), ("seq", "ascending")]).to_pylist()
    group_id = ordered[0]["group_id"]
    found = [{"group_id": group_id, **row} for row in converged(ordered)]
    return pa.Table.from_pylist(found, schema=_CONVERGED)


def converged(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `convergence` for one group, from its records in id order. Pure."""
    reached: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for event in events:
        kind, member, now = event["record_type"], event["member_id"], event["event_time"]
        if kind == "target_meta" and not event["tombstone"] and not (event["cause"] or 0) & COLD:
            row = {"assignment_epoch": event["assignment_epoch"], "computed_at": now, "convergence_ms": None}
            rows.append(row)
            waiting.append(row)
        elif kind == "member" and event["tombstone"]:
            reached.pop(member, None)
        elif kind == "member":
            reached.setdefault(member, -1)
        elif kind == "current" and not event["tombstone"]:
            reached[member] = event["member_epoch"]
        lowest = min(reached.values(), default=None)
        for row in [row for row in waiting if lowest is not None and lowest >= row["assignment_epoch"]]:
            row["convergence_ms"] = int((now - row["computed_at"]).total_seconds() * 1000)
            waiting.remove(row)
    return rows


_CONVERGED: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("assignment_epoch", pa.int32()),
        ("computed_at", pa.timestamp("us", tz="UTC")),
        ("convergence_ms", pa.int64()),
    ]
)


def _rebalance() -> Column:
    return (F.col("record_type") == "target_meta") & ~F.col("tombstone") & ~F.col("cold")
