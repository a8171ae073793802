"""Compacts many small batches into one folder of large files (PM-35). Only the owner of the directory may call it.

The new folder appears by one rename and replaces the batches it covers, which readers leave out from then on. Readers
that have begun before still read the old folders, so these are removed later: when the next folder is written, or after
a day.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from share_metrics.folders import Span, batch_name, confirmed, positions_of, raw, spans, spans_visible
from share_metrics.ingest import read_folders, write_hidden
from share_metrics.reader import Kind

FILE_BYTES: Final = 64 << 20
#: How long a reader may still read replaced folders; a report takes minutes.
_READ_MAX: Final = timedelta(days=1)


def compact(spark: SparkSession, data: Path, kind: Kind, at_least: int = 2, now: datetime | None = None) -> Path | None:
    """Compact the small folders of a kind if there are at least `at_least`. Returns the new folder, or None.

    Folders of FILE_BYTES and more are not changed, and neither is a batch that Spark may still repeat.
    """
    shown = spans_visible(data, kind)
    small = _small(shown, confirmed(data, kind))
    enough = len(small) >= at_least
    _remove_covered(spans(data, kind), shown, None if enough else (now or datetime.now(UTC)) - _READ_MAX)
    if not enough:
        return None
    target = raw(data, kind) / batch_name(small[0].first, small[-1].last)
    rows = read_folders(spark, kind, [span.folder for span in small])
    files = max(1, sum(_bytes(span.folder) for span in small) // FILE_BYTES)
    write_hidden(rows.coalesce(files), target, positions_of(small[-1].folder)).rename(target)
    return target


def _small(shown: Sequence[Span], done: int) -> list[Span]:
    """The newest run of small folders; older folders are large already."""
    small: list[Span] = []
    for span in reversed(shown):
        if span.last > done:
            continue
        if _bytes(span.folder) >= FILE_BYTES:
            break
        small.append(span)
    return small[::-1]


def _remove_covered(there: Sequence[Span], shown: Sequence[Span], before: datetime | None) -> None:
    """Remove the folders that others replace, if those appeared earlier than `before`; None removes all of them."""
    for one in there:
        over = next((span for span in shown if span.first <= one.first and one.last <= span.last), one)
        if over == one:
            continue
        if before is None or over.folder.stat().st_mtime < before.timestamp():
            shutil.rmtree(one.folder)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))
