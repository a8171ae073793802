"""Many small batches become one folder of large files (PM-35). Whoever owns the directory calls it.

The new folder appears by one rename and stands for the batches it covers, which readers leave out from then on. Those
that have begun still read them: they are removed when the next folder is made, or when they were covered for a day.
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
#: A report takes minutes.
_READ_MAX: Final = timedelta(days=1)


def compact(spark: SparkSession, data: Path, kind: Kind, at_least: int = 2, now: datetime | None = None) -> Path | None:
    """Put the small folders of a kind together if there are `at_least` so many; the new folder.

    Folders of FILE_BYTES and more stay as they are. A batch that Spark may still repeat is left alone.
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
    """The newest run of small folders; what is older is large already."""
    small: list[Span] = []
    for span in reversed(shown):
        if span.last > done:
            continue
        if _bytes(span.folder) >= FILE_BYTES:
            break
        small.append(span)
    return small[::-1]


def _remove_covered(there: Sequence[Span], shown: Sequence[Span], before: datetime | None) -> None:
    """Remove what others stand for, of those that appeared before then; of all if None."""
    for one in there:
        over = next((span for span in shown if span.first <= one.first and one.last <= span.last), one)
        if over == one:
            continue
        if before is None or over.folder.stat().st_mtime < before.timestamp():
            shutil.rmtree(one.folder)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))
