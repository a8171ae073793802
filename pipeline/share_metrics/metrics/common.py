"""Keys, order, event time and windows, for all metrics (PM-7, PM-30, PM-34)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.window import WindowSpec

from share_metrics.reader.schemas import GAP

KEY: Final = ("group_id", "topic_id", "partition")
ORDER: Final = ("epoch", "seq")
#: The columns that identify one write of a leader among all writes of its share-partition (PM-20 X8).
WRITE: Final = ("leader_epoch", "generation", "write_id")
#: Bit of `cause` that marks a cold copy: it repeats state that was written before, and is not an event (CM-18).
COLD: Final = 64


def so_far(*partition: str | Column) -> WindowSpec:
    """Rows of a partition up to and including the current one, in id order."""
    return Window.partitionBy(*partition).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def before(*partition: str | Column) -> WindowSpec:
    """Rows of a partition before the current one."""
    return Window.partitionBy(*partition).orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)


def in_order(*partition: str | Column) -> WindowSpec:
    """A partition in id order, for `lag`."""
    return Window.partitionBy(*partition).orderBy(*ORDER)


def timed(rows: DataFrame) -> DataFrame:
    """Rows, each once (PM-34), with `event_time`, the largest `ts` of their stream so far (PM-7), and `losses`.

    `losses` counts the gaps of the stream before the row. Where it changes between two rows of a key, records of that
    key may be missing between them (PM-11).
    """
    lost = F.when(F.col("record_type") == GAP, 1).otherwise(0)
    row = F.struct("entry_id", "record_type", "place")
    # Repeated rows are neighbours in this order: one sort serves to find them and to compute the running values.
    order = Window.partitionBy("stream").orderBy(*ORDER, "place", "entry_id", "record_type")
    seen = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marked = rows.withColumn("place", place()).select(
        "*", F.max("ts").over(seen).alias("event_time"), F.lag(row).over(order).eqNullSafe(row).alias("again")
    )
    return marked.where(~F.col("again")).withColumn("losses", F.sum(lost).over(seen)).drop("place", "again")


def place() -> Column:
    """The order of rows with the same id. A gap ends at an id whose entry may exist, and comes before that entry.

    But a lost tail ends at an entry that was read before the store lost the tail, and comes after it (PM-11).
    """
    tail = F.get_json_object("error", "$.reason") == "tail"
    return F.when(F.col("record_type") != GAP, 1).when(tail, 2).otherwise(0)


def is_cold() -> Column:
    """True for share-state records that are cold copies, by their cause (X2) or by their times (PM-43)."""
    by_cause = F.coalesce("cause", F.lit(0)).bitwiseAND(COLD) != 0
    return by_cause | F.coalesce(F.col("create_ts") != F.col("write_ts"), F.lit(False))


def is_repeated(*partition: str) -> Column:
    """True for records that hold the same write as the last numbered record before them (PM-34).

    A leader repeats a write if it got no response, and has only one write outstanding, so only cold copies can be
    between the two. A record without a `write_id`, from an earlier build or not written by a leader, never counts as a
    repeat.
    """
    write = F.when(F.col("write_id").isNotNull(), F.struct(*WRITE))
    return F.coalesce(write == F.last(write, ignorenulls=True).over(before(*partition)), F.lit(False))


def since(rows: DataFrame, begin: Column) -> DataFrame:
    """Share-state rows since `begin`, and the earlier rows that give each share-partition's state at `begin` (PM-32).

    The earlier rows are the last snapshot and the records after it, however old: without them the first change after an
    idle time could not be computed. If there is no snapshot, they start with the last record that has a start offset,
    which is enough to compute what was finished since (PM-41). Rows without a time, such as gaps, are always included.
    Time is event time (PM-7): if a new owner's clock is slow, its records are placed at their stream's latest time so
    far.
    """
    return standing(_reached(rows, begin), rows.columns)


def standing(marked: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows that are `reached`, rows without a time, and those earlier rows that give the state at that time."""
    late = F.col("ts").isNull() | F.col("reached")
    old = marked.where(~late)
    states = old.where(F.col("record_type").isin("snapshot", "update")).groupBy(*KEY)
    last = F.max(F.when(F.col("start_offset").isNotNull(), F.struct(*ORDER)))
    state_begins = states.agg(
        F.coalesce(F.max(F.when(F.col("record_type") == "snapshot", F.struct(*ORDER))), last).alias("begin_at")
    )
    kept = old.join(state_begins, [*KEY]).where(F.struct(*ORDER) >= F.col("begin_at")).select(*columns)
    return marked.where(late).select(*columns).unionByName(kept)


def until(rows: DataFrame, end: Column) -> DataFrame:
    """Rows with an event time before `end`, and all rows without a time, such as gaps."""
    return _reached(rows, end).where(F.col("ts").isNull() | ~F.col("reached")).select(*rows.columns)


def _reached(rows: DataFrame, moment: Column) -> DataFrame:
    """Rows with `reached`: whether event time, the largest `ts` of the stream so far, has reached `moment`.

    This is true of all rows from the first one whose own `ts` has reached it, so no window over the whole history is
    needed.
    """
    first = rows.where(F.col("ts") >= moment).groupBy("stream").agg(F.min(F.struct(*ORDER)).alias("first"))
    first = first.localCheckpoint(eager=False)  # a row for each stream, computed once for all later actions
    joined = rows.join(F.broadcast(first), "stream", "left")
    return joined.withColumn("reached", F.coalesce(F.struct(*ORDER) >= F.col("first"), F.lit(False)))


def windowed(rows: DataFrame, window_s: int) -> DataFrame:
    """Rows with `window`, the start of the tumbling window of their event time."""
    return rows.withColumn("window", F.window("event_time", f"{window_s} seconds").start)


def newest(column: str) -> Column:
    """The value of the newest row that has one; newest by id, never by time (PM-30)."""
    return F.max_by(column, F.when(F.col(column).isNotNull(), F.struct(*ORDER)))


def ratio(part: Column, whole: Column) -> Column:
    """part / whole; null where whole is 0 or null."""
    return F.when(whole != 0, part / whole)


def at_least_0(value: Column) -> Column:
    """The value, but 0 where it is negative. Null stays null, which Spark's `greatest` would turn into 0."""
    return F.when(value.isNotNull(), F.greatest(value, F.lit(0)))
