"""Streams into Parquet, exactly once towards whoever reads it through `stored` (PM-2, PM-35, PM-36).

Every micro-batch has a folder of its own, named by its number and replaced as a whole: Spark repeats a batch that was
not confirmed with the same number and the same positions, so a kill at any point leaves no row twice and none out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from share_metrics.reader import Kind, schema_of

#: Kinds that metrics are made of; `log_meta` may be taken too.
KINDS: Final = (Kind.SHARE_STATE, Kind.GROUP)
TRIGGER_S: Final = 60


class Source(NamedTuple):
    """Where to ingest from, and what is done about losses."""

    url: str
    password_env: str = ""
    fail_on_data_loss: bool = False
    max_rows_per_trigger: int = 300_000

    def options(self, kind: Kind) -> dict[str, str]:
        """Options of the data source."""
        return {
            "url": self.url,
            "kind": kind,
            "passwordEnv": self.password_env,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "maxRowsPerTrigger": str(self.max_rows_per_trigger),
        }


def start(
    spark: SparkSession,
    source: Source,
    data: Path,
    kinds: Sequence[Kind] = KINDS,
    *,
    once: bool = True,
    written: Callable[[Kind, int], None] = lambda kind, number: None,
) -> list[StreamingQuery]:
    """One running query for each kind, which appends below `data`; `once`: they end when they have what is there now.

    Positions lie in `data`/checkpoints: two processes must not ingest into one `data`. `written` is called behind every
    batch, before it is confirmed.
    """
    return [_query(spark, source, data, kind, once, written) for kind in kinds]


def stored(spark: SparkSession, data: Path, kind: Kind) -> DataFrame:
    """All rows of a kind that were ingested below `data`; none if nothing was yet."""
    schema = from_arrow_schema(schema_of(kind))
    folder = _raw(data, kind)
    if not any(folder.glob("batch=*")):
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(str(folder)).select(*schema.names)


def _raw(data: Path, kind: Kind) -> Path:
    return data / "raw" / kind


def _query(  # noqa: PLR0917 - the parts of one query
    spark: SparkSession, source: Source, data: Path, kind: Kind, once: bool, written: Callable[[Kind, int], None]
) -> StreamingQuery:
    def write(batch: DataFrame, number: int) -> None:
        dated = batch.withColumn("dt", F.date_format("ts", "yyyy-MM-dd")).withColumn("hour", F.date_format("ts", "HH"))
        target = _raw(data, kind) / f"batch={number:08d}"
        # Static: a repeated batch replaces the whole folder, also partitions that it has no rows for any more.
        writer = dated.coalesce(1).write.mode("overwrite").option("partitionOverwriteMode", "static")
        writer.partitionBy("dt", "hour").parquet(str(target))
        written(kind, number)

    rows = spark.readStream.format("redis_streams").options(**source.options(kind)).load()
    query = rows.writeStream.foreachBatch(write).queryName(kind)
    query = query.option("checkpointLocation", str(data / "checkpoints" / kind))
    query = query.trigger(availableNow=True) if once else query.trigger(processingTime=f"{TRIGGER_S} seconds")
    return query.start()
