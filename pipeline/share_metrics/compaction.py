"""Many small batches become one folder of large files (PM-35). Whoever owns the directory calls it.

The new folder appears by one rename and stands for the batches it covers, which readers leave out from then on; they
are removed a compaction later, when nobody reads them any more.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from share_metrics.folders import batch_name, confirmed, raw, spans, spans_visible
from share_metrics.ingest import read_folders, write_hidden
from share_metrics.reader import Kind

FILE_BYTES: Final = 64 << 20


def compact(spark: SparkSession, data: Path, kind: Kind, at_least: int = 2) -> Path | None:
    """Put the small folders of a kind together if there are `at_least` so many; the new folder.

    Folders of FILE_BYTES and more stay as they are. A batch that Spark may still repeat is left alone.
    """
    shown = spans_visible(data, kind)
    for span in spans(data, kind):
        if span not in shown:
            shutil.rmtree(span.folder)
    done = confirmed(data, kind)
    small = []
    for span in reversed(shown):  # the newest run of small ones: what is older is large already
        if span.last > done:
            continue
        if _bytes(span.folder) >= FILE_BYTES:
            break
        small.append(span)
    if len(small) < at_least:
        return None
    small.reverse()
    target = raw(data, kind) / batch_name(small[0].first, small[-1].last)
    rows = read_folders(spark, kind, [span.folder for span in small])
    files = max(1, sum(_bytes(span.folder) for span in small) // FILE_BYTES)
    write_hidden(rows.coalesce(files), target).rename(target)
    return target


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))
