"""Literal DataFrames: entries encoded as the services write them and decoded by the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records as r
from share_coordinator.core.records import ShareRecord
from share_metrics.reader import EntryId, Gap, Kind
from share_metrics.reader.decoding import RawEntry, decode, gap_row, to_batch
from tests.support.pipeline_entries import STREAM, state_entry

#: The time of the first literal records, in seconds since 1970; 0 would mean "not known".
BASE_S = 36_000


def frame(spark: SparkSession, kind: Kind, rows: Sequence[dict[str, Any]]) -> DataFrame:
    """Return the reader's rows as a DataFrame."""
    return spark.createDataFrame(pa.Table.from_batches([to_batch(kind, list(rows))]))


def states(spark: SparkSession, reported: Sequence[tuple[int, ShareRecord] | Gap]) -> DataFrame:
    """Return a DataFrame of one stream's share-state records, given as (append time in seconds from BASE_S, record),
    and gaps."""
    rows = [
        gap_row(one) if isinstance(one, Gap)
        else decode(Kind.SHARE_STATE, state_entry(EntryId(1, seq), one[1], (BASE_S + one[0]) * 1000))
        for seq, one in enumerate(reported, start=1)
    ]  # fmt: skip
    return frame(spark, Kind.SHARE_STATE, rows)


def groups(spark: SparkSession, reported: Sequence[tuple[int, r.Record]]) -> DataFrame:
    """Return a DataFrame of one stream's group records, given as (append time in seconds from BASE_S, record)."""
    entries = []
    for seq, (at, record) in enumerate(reported, start=1):
        letter, data = GroupLogCodec().encode(record, (BASE_S + at) * 1000)
        entries.append(RawEntry(STREAM.replace("sgs", "gc"), EntryId(1, seq), letter, data))
    return frame(spark, Kind.GROUP, [decode(Kind.GROUP, entry) for entry in entries])


def rows_of(found: DataFrame, *order: str) -> list[dict[str, Any]]:
    """Return the rows as plain values."""
    return [row.asDict(recursive=True) for row in found.orderBy(*order).collect()]
