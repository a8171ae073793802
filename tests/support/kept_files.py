"""Parquet files as an ingest writes them, made without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from share_metrics.archive.commits import Span, Written, commit, raw
from share_metrics.reader import Kind, schema_of
from share_metrics.reader.decoding import to_batch

_NO_TIME: Final = "__HIVE_DEFAULT_PARTITION__"


def keep(  # noqa: PLR0917 - they describe a folder of batches
    data: Path, kind: Kind, rows: Sequence[dict[str, Any]], first: int, last: int | None = None, positions: str = ""
) -> Span:
    """Commit rows of the reader as one batch, or as the batches `first` to `last`, by day and hour."""
    numbers = first, first if last is None else last
    folder = raw(data, kind) / f"batch={numbers[0]}-{numbers[1]}.{len(positions):x}"
    hours: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in to_batch(kind, list(rows)).to_pylist():
        ts = row["ts"]
        hours[f"dt={ts:%Y-%m-%d}/hour={ts:%H}" if ts else f"dt={_NO_TIME}/hour={_NO_TIME}"].append(row)
    files = []
    for hour, those in hours.items():
        (folder / hour).mkdir(parents=True)
        table = pa.Table.from_pylist(those, schema=schema_of(kind))
        file = folder / hour / "part-0.zstd.parquet"
        # Times in Spark's format.
        pq.write_table(table, file, compression="zstd", use_deprecated_int96_timestamps=True)
        files.append((f"{hour}/{file.name}", file.stat().st_size))
    return commit(data, kind, numbers, Written(folder.name, files), positions)


def batch_name(first: int, last: int | None = None) -> str:
    """Return an earlier build's name for the folder of one batch, or of several; the folder is recognised by that
    name."""
    return f"batch={first:08d}" if last is None else f"batch={first:08d}-{last:08d}"
