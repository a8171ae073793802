"""The quality of the rows, and how evenly shards are used (PM-11, PM-62, PM-64)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import KEY, ratio
from share_metrics.reader.schemas import CLAIM, GAP, MALFORMED, NOOP, NOT_RECORDS, UNKNOWN

_GAP: Final = "from_id string, to_id string, lost bigint, reason string"


def gaps(rows: DataFrame) -> DataFrame:
    """One row for each gap: its stream and ids, the number of lost entries, and the reason (PM-11)."""
    found = rows.where(F.col("record_type") == GAP).select("stream", F.from_json("error", _GAP).alias("gap"))
    return found.select("stream", "gap.*")


def quality(rows: DataFrame) -> DataFrame:
    """One row for each stream: its entries, and its non-records by type. Without faults `lost` is 0 (PM-64)."""
    return rows.groupBy("stream").agg(*_quality())


def _quality() -> list[Column]:
    lost = F.from_json("error", _GAP)["lost"]

    def of_type(name: str) -> Column:
        return F.sum(F.when(F.col("record_type") == name, 1).otherwise(0))

    return [
        F.sum(F.when(F.col("record_type") != GAP, 1).otherwise(0)).alias("entries"),
        of_type(CLAIM).alias("claims"),
        of_type(NOOP).alias("noops"),
        of_type(UNKNOWN).alias("unknown"),
        of_type(MALFORMED).alias("quarantined"),
        of_type(GAP).alias("gaps"),
        F.sum(F.when(F.col("record_type") == GAP, lost).otherwise(0)).alias("lost"),
        F.max("ts").alias("newest_ts"),
    ]


def shard_skew(rows: DataFrame) -> DataFrame:
    """One row for each share-state stream: entries, bytes, keys; and the skew and Gini of all streams (PM-62).

    Skew is the entry count of the largest stream divided by the mean; 1 means perfectly even. Streams without rows are
    left out.
    """
    records = rows.where(~F.col("record_type").isin(*NOT_RECORDS))
    streams = records.groupBy("stream").agg(
        F.count("*").alias("entries"),
        F.sum("bytes").alias("bytes"),
        F.count_distinct(*KEY).alias("keys"),
    )
    totals = streams.agg(
        (F.max("entries") / F.avg("entries")).alias("skew"),
        F.array_sort(F.collect_list("entries")).alias("sorted"),
    )
    count = F.size("sorted")
    ranked = F.aggregate(
        F.transform("sorted", lambda entries, index: entries * (index + 1)), F.lit(0).cast("bigint"), lambda a, b: a + b
    )
    total = F.aggregate("sorted", F.lit(0).cast("bigint"), lambda a, b: a + b)
    # `ratio`, because Spark's division would fail without any stream.
    gini = 2 * ratio(ranked, count * total) - ratio(count + 1, count)
    return streams.crossJoin(totals.select("skew", gini.alias("gini")))
