"""Selects the rows for a page: one query finds where each stream reaches the page's begin and end (PM-7, PM-32)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import ORDER, standing

_EDGES: Final = pa.schema(
    [
        ("stream", pa.string()),
        *((name, pa.int64()) for name in ("begun_epoch", "begun_seq", "ended_epoch", "ended_seq")),
    ]
)


#: Greater than every id.
_LAST: Final = (1 << 63, 0)


class Between:
    """`since` and `until` for rows of several kinds, with one query for where each stream reaches both times.

    The result of the query, a row for each stream, comes to the driver, so the plans that use it are short.
    """

    def __init__(self, rows: Sequence[DataFrame], begin: datetime, end: datetime) -> None:
        first, *others = (one.select("stream", "ts", *ORDER) for one in rows)
        for other in others:
            first = first.unionByName(other)
        at = {"begun": F.col("ts") >= F.lit(begin), "ended": F.col("ts") >= F.lit(end), "any": F.col("ts").isNotNull()}
        # By epoch too, so that the minimum is of plain numbers, which Spark aggregates without a sort.
        found = first.groupBy("stream", "epoch").agg(
            *(F.min(F.when(when, F.col("seq"))).alias(name) for name, when in at.items())
        ).collect()  # fmt: skip
        edges: dict[str, dict[str, tuple[int, int]]] = {}
        for row in found:
            here = edges.setdefault(row["stream"], {})
            for name in at:
                if row[name] is not None:
                    here[name] = min(here.get(name, _LAST), (row["epoch"], row[name]))
        self._older = {name for name, one in edges.items() if "any" in one and one["any"] < one.get("begun", _LAST)}
        none = (None, None)
        told = [(name, *one.get("begun", none), *one.get("ended", none)) for name, one in sorted(edges.items())]
        self._edges = pa.table([list(column) for column in zip(*told, strict=True)] or [[]] * 5, schema=_EDGES)

    def until(self, rows: DataFrame) -> DataFrame:
        """Rows before the end, and those without a time."""
        return self._before(rows).select(*rows.columns)

    def both(self, rows: DataFrame) -> DataFrame:
        """Share-state rows before the end that `since` would keep for the begin."""
        marked = self._before(rows)
        if not self._older:  # no stream has rows before the begin
            return marked.select(*rows.columns)
        reached = F.struct(*ORDER) >= F.struct("begun_epoch", "begun_seq")
        known = F.col("begun_epoch").isNotNull()
        return standing(marked.withColumn("reached", F.coalesce(known & reached, F.lit(False))), rows.columns)

    def _before(self, rows: DataFrame) -> DataFrame:
        joined = rows.join(F.broadcast(rows.sparkSession.createDataFrame(self._edges)), "stream", "left")
        never = F.col("ts").isNull() | F.col("ended_epoch").isNull()
        return joined.where(never | (F.struct(*ORDER) < F.struct("ended_epoch", "ended_seq")))
