"""Parquet files as an ingest leaves them, written without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from share_metrics.folders import POSITIONS, batch_name, raw
from share_metrics.reader import Kind, schema_of
from share_metrics.reader.decoding import to_batch

_NO_TIME: Final = "__HIVE_DEFAULT_PARTITION__"


def keep(  # noqa: PLR0917 - what a folder of batches is
    data: Path, kind: Kind, rows: Sequence[dict[str, Any]], first: int, last: int | None = None, positions: str = ""
) -> Path:
    """Rows of the reader in the folder of one batch, or of the batches `first` to `last`, by day and hour."""
    folder = raw(data, kind) / batch_name(first, last)
    hours: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in to_batch(kind, list(rows)).to_pylist():
        ts = row["ts"]
        hours[f"dt={ts:%Y-%m-%d}/hour={ts:%H}" if ts else f"dt={_NO_TIME}/hour={_NO_TIME}"].append(row)
    for hour, those in hours.items():
        (folder / hour).mkdir(parents=True)
        table = pa.Table.from_pylist(those, schema=schema_of(kind))
        # As Spark writes times.
        pq.write_table(
            table, folder / hour / "part-0.zstd.parquet", compression="zstd", use_deprecated_int96_timestamps=True
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / POSITIONS).write_text(positions)
    return folder
