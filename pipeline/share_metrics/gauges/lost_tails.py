"""The tails that streams lost, as rows report them: what was read of these is no longer in the store (PM-123)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.reader.offsets import EntryId, entry_id
from share_metrics.reader.schemas import GAP


def lost_tails(rows: DataFrame) -> dict[str, EntryId]:
    """For each stream that lost a tail, the last id up to which entries may be among the lost ones."""
    found = rows.where(F.col("record_type") == GAP).select("stream", "error").collect()
    return newest_tails((row["stream"], row["error"]) for row in found)


def newest_tails(gaps: Iterable[tuple[str, str]]) -> dict[str, EntryId]:
    """The same, from the streams and texts of gaps."""
    tails: dict[str, EntryId] = {}
    for stream, text in gaps:
        gap = json.loads(text)
        if gap["reason"] == "tail":
            tails[stream] = max(entry_id(gap["to_id"]), tails.get(stream, EntryId(0, 0)))
    return tails


def rows_after(rows: DataFrame, tails: Mapping[str, EntryId]) -> DataFrame:
    """The rows without those up to a tail that their stream lost."""
    for stream, last in tails.items():
        rows = rows.where((F.col("stream") != stream) | _after(last))
    return rows


def _after(last: EntryId) -> Column:
    newer = (F.col("epoch") > last.epoch) | ((F.col("epoch") == last.epoch) & (F.col("seq") > last.seq))
    return F.coalesce(newer, F.lit(False))
