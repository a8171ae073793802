"""The newest values and the counts of each key in one batch of rows (PM-30, PM-38).

Nothing is carried from batch to batch here; the caller (`gauges`) does that.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import COLD, KEY, ORDER, WRITE, is_cold, is_repeated
from share_metrics.reader.schemas import GAP, MALFORMED, UNKNOWN, WRITE_COUNTS

_VALUES = ("start_offset", "delivery_complete_count", "hwm", "speo")
_ARCHIVED = 4
_ARCHIVING = 3
_AT_LIMIT = 1  # a `reason` in `archived`


def newest_states(rows: DataFrame, delivery_limit: int = 5) -> DataFrame:
    """One row for each share-partition: its newest values, null where no row has one, and the counts of its writes.

    Only values of the newest state are used, none from before a tombstone or from another state epoch. `begins`: the
    newest state starts in these rows. If the rows have only one state epoch, they do not show whether it is new. For
    that case `early` says for each value whether it comes before the first snapshot or tombstone; if the epoch is new,
    such a value belongs to the previous one. `gone`: the newest record is a tombstone. `poison_sightings`: offsets that
    a write archived at the group's delivery limit, or released with one delivery left; an offset is counted at every
    such write (PM-48). `hwm_s`: when the newest high watermark was written, s since 1970.

    A write that is repeated in these rows counts once. `first_write` holds the identity and the counts of the first
    write, `last_write` the identity of the last one, so that the caller recognises a write of an earlier batch (PM-34).
    """
    records = rows.where(F.col("record_type").isin("snapshot", "update", "tombstone"))
    at, tombstone, cold = F.struct(*ORDER), F.col("record_type") == "tombstone", is_cold()
    records = records.withColumn("repeated", is_repeated(*KEY))
    write = ~tombstone & ~cold & ~F.col("repeated")
    counted = [F.when(write, F.coalesce(name, F.lit(0))).otherwise(0).alias(name) for name in WRITE_COUNTS]
    ones = F.when(write, 1).otherwise(0).alias("writes")
    sightings = F.when(write, _poisoned(delivery_limit)).otherwise(0).alias("poison_sightings")
    numbered = F.when(F.col("write_id").isNotNull(), at)
    marks = F.when(F.col("record_type") != "update", F.struct(at.alias("at"), "state_epoch", tombstone.alias("gone")))
    counts = ("gone", *WRITE_COUNTS, "writes", "poison_sightings")

    def newest_at(name: str) -> Column:
        timed = F.struct(at.alias("at"), F.col(name).alias("value"))
        return F.max_by(timed, F.when(F.col(name).isNotNull(), at)).alias(name)

    hwm_s = F.max_by(F.col("ts").cast("double"), F.when(F.col("hwm").isNotNull(), at))

    found = records.groupBy(*KEY).agg(
        F.max_by(tombstone, at).alias("gone"),
        F.sort_array(F.collect_list(marks)).alias("marks"),
        *map(newest_at, _VALUES),
        hwm_s.alias("hwm_s"),
        *(F.sum(value).alias(name) for name, value in zip(counts[1:], (*counted, ones, sightings), strict=True)),
        F.min_by(F.struct(F.struct(*WRITE).alias("write"), *counted, ones, sightings), numbered).alias("first_write"),
        F.max_by(F.struct(*WRITE), numbered).alias("last_write"),
    )
    found = found.withColumn("state", F.aggregate("marks", _no_state(), _state_after))
    begun, first = F.col("state.begun"), F.get("marks", F.lit(0))["at"]

    def early(name: str) -> Column:
        return F.coalesce(F.col(f"{name}.at") < first, F.lit(False)).alias(name)

    return found.select(
        *KEY, *counts, F.col("state.state_epoch").alias("state_epoch"), begun.isNotNull().alias("begins"),
        *(F.when(begun.isNull() | (F.col(f"{name}.at") >= begun), F.col(f"{name}.value")).alias(name)
          for name in _VALUES),
        F.struct(*map(early, _VALUES)).alias("early"), "hwm_s", "first_write", "last_write",
    )  # fmt: skip


def _no_state() -> Column:
    begun = F.lit(None).cast("struct<epoch:bigint,seq:bigint>").alias("begun")
    return F.struct(begun, F.lit(None).cast("int").alias("state_epoch"))


def _state_after(state: Column, mark: Column) -> Column:
    """The id at which the newest state starts, and its epoch, after one more snapshot or tombstone."""
    ends = mark["gone"] | (mark["state_epoch"] != state["state_epoch"])
    epoch = F.when(~mark["gone"], F.coalesce(mark["state_epoch"], state["state_epoch"]))
    return F.struct(F.when(ends, mark["at"]).otherwise(state["begun"]).alias("begun"), epoch.alias("state_epoch"))


def newest_members(rows: DataFrame) -> DataFrame:
    """One row for each member that joined, changed or left. `there`: it is a member at the end (PM-54)."""
    records = rows.where("record_type = 'member'")
    there = F.max_by(~F.col("tombstone"), F.struct(*ORDER))
    return records.groupBy("group_id", "member_id").agg(there.alias("there"))


def rebalances(rows: DataFrame) -> DataFrame:
    """One row for each group with new target assignments, with their number (PM-55)."""
    cold = F.coalesce(F.col("cause"), F.lit(0)).bitwiseAND(COLD) != 0
    computed = rows.where((F.col("record_type") == "target_meta") & ~F.col("tombstone") & ~cold)
    return computed.groupBy("group_id").agg(F.count("*").alias("rebalances"))


def topic_names(rows: DataFrame) -> DataFrame:
    """The dimension `topics`: topic_id and topic_name, from the newest `state` record that names each (PM-19)."""
    named = rows.where("record_type = 'state'").select(*ORDER, F.explode("initialized").alias("topic"))
    newest_name = F.max_by("topic.topic_name", F.struct(*ORDER)).alias("topic_name")
    return named.groupBy(F.col("topic.topic_id").alias("topic_id")).agg(newest_name)


def stream_news(rows: DataFrame) -> DataFrame:
    """One row for each stream: entries, newest time, and lost, quarantined and unknown entries (PM-64, PM-65)."""
    lost = F.from_json("error", "lost bigint")["lost"]

    def of_type(name: str, value: Column) -> Column:
        return F.sum(F.when(F.col("record_type") == name, value).otherwise(0))

    return rows.groupBy("stream").agg(
        F.sum(F.when(F.col("record_type") != GAP, 1).otherwise(0)).alias("entries"),
        F.max("ts").cast("double").alias("newest_s"),
        of_type(GAP, lost).alias("lost"),
        of_type(MALFORMED, F.lit(1)).alias("quarantined"),
        of_type(UNKNOWN, F.lit(1)).alias("unknown"),
    )


def _poisoned(default_limit: int) -> Column:
    """How many offsets a write archives at the delivery limit, or releases with one delivery left.

    A leader names the offsets that it archives, and the limit (PM-20 X9, X10). For writes of earlier builds they are
    found in the batches of updates, with the default limit. A snapshot's batches hold the whole state, not its changes.
    """
    limit, numbered = F.coalesce("delivery_limit", F.lit(default_limit)), F.col("write_id").isNotNull()

    def listed(batch: Column) -> Column:
        state, count = batch["delivery_state"], batch["delivery_count"]
        given_up = ((state == _ARCHIVED) & (count >= limit)) | (state == _ARCHIVING)
        return ((state == 0) & (count >= limit - 1)) | (~numbered & given_up)

    named = _offsets(F.filter("archived", lambda found: found["reason"] == _AT_LIMIT))
    batches = F.when(F.col("record_type") == "update", F.filter("state_batches", listed))
    return named + _offsets(batches)


def _offsets(ranges: Column) -> Column:
    """How many offsets are in ranges; 0 for null."""
    sizes = F.transform(ranges, lambda found: found["last_offset"] - found["first_offset"] + 1)
    return F.coalesce(F.aggregate(sizes, F.lit(0).cast("bigint"), lambda total, one: total + one), F.lit(0))
