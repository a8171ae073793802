"""The table `log_ends` of samples: a file for each trigger, in log_ends/dt=… (PM-18)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from share_metrics.reader import Store
from share_metrics.reader.log_ends import SCHEMA, log_ends

_COLUMNS: Final = (
    "topic_id string, partition int, log_start_offset bigint, high_watermark bigint, log_end_offset bigint, "
    "sampled_at timestamp"
)
_FULL: Final = SCHEMA.append(pa.field("sampled_at", pa.timestamp("us", tz="UTC")))


def sample(store: Store, data: Path, now: datetime | None = None) -> int:
    """Take one sample and store it. Returns how many logs there were."""
    at = now or datetime.now(UTC)
    rows = [{**end._asdict(), "sampled_at": at} for end in log_ends(store)]
    if rows:
        folder = data / "log_ends" / f"dt={at:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{at:%H%M%S%f}.parquet"
        hidden = target.with_name(f".{target.name}")
        try:
            pq.write_table(pa.Table.from_pylist(rows, schema=_FULL), hidden, compression="zstd")
            hidden.replace(target)
        finally:
            hidden.unlink(missing_ok=True)  # after a failure, half a file that nothing else would remove
    return len(rows)


def samples(spark: SparkSession, data: Path) -> DataFrame:
    """All samples in `data`; no rows if nothing was sampled yet."""
    folder = data / "log_ends"
    if not any(folder.glob("dt=*/*.parquet")):
        return spark.createDataFrame([], _COLUMNS)
    return spark.read.schema(_COLUMNS).parquet(str(folder)).select(*(field.name for field in _FULL))
