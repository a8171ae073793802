"""What all metrics agree on: keys, order, event time and windows (PM-7, PM-30, PM-34)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.window import WindowSpec

from share_metrics.reader.schemas import GAP

KEY: Final = ("group_id", "topic_id", "partition")
ORDER: Final = ("epoch", "seq")
#: Bit of `cause` that marks a cold copy: state written once more, which is no event of its own (CM-18).
COLD: Final = 64


def so_far(*partition: str | Column) -> WindowSpec:
    """Rows of a partition up to and with the present one, in the order of ids."""
    return Window.partitionBy(*partition).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def before(*partition: str | Column) -> WindowSpec:
    """Rows of a partition before the present one."""
    return Window.partitionBy(*partition).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)


def in_order(*partition: str | Column) -> WindowSpec:
    """A partition in the order of ids, for `lag`."""
    return Window.partitionBy(*partition).orderBy(*ORDER)


def timed(rows: DataFrame) -> DataFrame:
    """Rows, each once (PM-34), with `event_time`, the largest `ts` of their stream so far (PM-7), and `losses`.

    `losses` counts the gaps of the stream before the row: where it changes between two rows of a key, something of that
    key may be missing between them (PM-11).
    """
    once = rows.withColumn("place", place()).dropDuplicates(["stream", "entry_id", "record_type", "place"])
    lost = F.when(F.col("record_type") == GAP, 1).otherwise(0)
    order = Window.partitionBy("stream").orderBy(*ORDER, "place")
    seen = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    told = once.withColumn("event_time", F.max("ts").over(seen)).withColumn("losses", F.sum(lost).over(seen))
    return told.drop("place")


def place() -> Column:
    """Of rows that share an id, which comes first: a gap ends at an id whose entry may be there, and stands before it.

    But a lost tail ends at an entry that was read before the store lost it: what came after the loss follows (PM-11).
    """
    tail = F.get_json_object("error", "$.reason") == "tail"
    return F.when(F.col("record_type") != GAP, 1).when(tail, 2).otherwise(0)


def is_cold() -> Column:
    """Whether a share-state record is a cold copy: by its cause (X2), or by its times, which say so too (PM-43)."""
    told = F.coalesce("cause", F.lit(0)).bitwiseAND(COLD) != 0
    return told | F.coalesce(F.col("create_ts") != F.col("write_ts"), F.lit(False))


def since(rows: DataFrame, begin: Column) -> DataFrame:
    """Share-state rows from a time on, and before it what says where each share-partition stood then (PM-32).

    That is its last snapshot and what follows it, however long ago: else what a share-partition did after an idle time
    would be compared with nothing. Where none is held, it is the last record that names a start offset, for that is
    enough to tell what was finished since (PM-41). Rows without a time, as gaps, always count. Time is event time
    (PM-7): what a later owner wrote by a clock that runs behind belongs to the time that its stream had shown before.
    """
    marked = _reached(rows, begin)
    late = F.col("ts").isNull() | F.col("reached")
    old = marked.where(~late)
    states = old.where(F.col("record_type").isin("snapshot", "update")).groupBy(*KEY)
    last = F.max(F.when(F.col("start_offset").isNotNull(), F.struct(*ORDER)))
    stood = states.agg(
        F.coalesce(F.max(F.when(F.col("record_type") == "snapshot", F.struct(*ORDER))), last).alias("stood")
    )
    kept = old.join(stood, [*KEY]).where(F.struct(*ORDER) >= F.col("stood")).select(*rows.columns)
    return marked.where(late).select(*rows.columns).unionByName(kept)


def until(rows: DataFrame, end: Column) -> DataFrame:
    """Rows whose event time lies before a time, and all rows without a time, as gaps."""
    return _reached(rows, end).where(F.col("ts").isNull() | ~F.col("reached")).select(*rows.columns)


def _reached(rows: DataFrame, moment: Column) -> DataFrame:
    """Rows with `reached`: whether event time, the largest `ts` of the stream so far, is no earlier than `moment`.

    Without a window over all of history: it is so from the first id on whose own `ts` is.
    """
    first = rows.where(F.col("ts") >= moment).groupBy("stream").agg(F.min(F.struct(*ORDER)).alias("first"))
    first = first.localCheckpoint(eager=False)  # a row for each stream, found once however many actions follow
    joined = rows.join(F.broadcast(first), "stream", "left")
    return joined.withColumn("reached", F.coalesce(F.struct(*ORDER) >= F.col("first"), F.lit(False)))


def windowed(rows: DataFrame, window_s: int) -> DataFrame:
    """Rows with `window`, the start of the tumbling window that their event time lies in."""
    return rows.withColumn("window", F.window("event_time", f"{window_s} seconds").start)


def newest(column: str) -> Column:
    """The value of the newest row by id, never by time (PM-30); of those that have one."""
    return F.max_by(column, F.when(F.col(column).isNotNull(), F.struct(*ORDER)))


def ratio(part: Column, whole: Column) -> Column:
    """part / whole, null where there is nothing to compare with."""
    return F.when(whole != 0, part / whole)


def at_least_0(value: Column) -> Column:
    """The value, 0 where it is negative, and null where it is null: Spark's `greatest` would make that 0 too."""
    return F.when(value.isNotNull(), F.greatest(value, F.lit(0)))
