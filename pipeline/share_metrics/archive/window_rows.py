"""Reads the ingested rows that are needed for a given period; folders of other hours are skipped by their names
(PM-32).

The result is a superset of the rows that `since` and `until` keep, so applying them to it gives the same rows. It also
reads the earlier hours that hold the last snapshots of share-partitions and the records after them. It finds these
hours by reading a few columns.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.archive.commits import visible
from share_metrics.archive.row_files import PLACED, rows_in
from share_metrics.metrics.common import KEY, ORDER, since
from share_metrics.reader import Kind, schema_of

#: The columns that `since` reads; state batches, which are most of the bytes, are not among them.
_LIGHT: Final = ("stream", *ORDER, "ts", "record_type", *KEY, "start_offset", *PLACED)


def states_of(spark: SparkSession, data: Path, begin: datetime, end: datetime | None = None) -> DataFrame:
    """The rows of kind `share_state` that are needed to compute everything from `begin` to before `end`."""
    there = visible(data, Kind.SHARE_STATE)
    hours = {hour for span in there for hour in span.hours}
    rows = rows_in(spark, Kind.SHARE_STATE, there, placed=True)
    if end is not None and any(hour >= _hour_of(end) for hour in hours):
        rows = _before(rows, end)
    if not any(hour < _hour_of(begin) for hour in hours):  # by their names, no hour is older
        return rows.select(*schema_of(Kind.SHARE_STATE).names)
    old = _hour() < _text(begin)
    needed = since(rows.select(*_LIGHT), F.lit(begin)).where(old).select(*PLACED).distinct().collect()
    older = _hour().isin(*(f"{row['dt']}T{row['hour']}" for row in needed)) if needed else F.lit(False)
    wanted = _hour().isNull() | (_hour() >= _text(begin)) | older
    return rows.where(wanted).select(*schema_of(Kind.SHARE_STATE).names)


def _before(rows: DataFrame, end: datetime) -> DataFrame:
    """Rows before the first one of their stream that was appended at `end` or later (PM-7)."""
    later = rows.where((_hour() >= _text(end)) & (F.col("ts") >= F.lit(end)))
    ended = later.groupBy("stream").agg(F.min(F.struct(*ORDER)).alias("ended")).localCheckpoint(eager=False)
    earlier = rows.where(_hour().isNull() | (_hour() <= _text(end))).join(F.broadcast(ended), "stream", "left")
    kept = F.col("ts").isNull() | F.col("ended").isNull() | (F.struct(*ORDER) < F.col("ended"))
    return earlier.where(kept).select(*rows.columns)


def _hour() -> Column:
    """The hour of a row's folder; null for rows without a time."""
    return F.concat(F.col("dt"), F.lit("T"), F.col("hour"))


def _text(at: datetime) -> Column:
    return F.lit(_hour_of(at))


def _hour_of(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H}"
