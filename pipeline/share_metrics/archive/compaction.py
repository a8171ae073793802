"""Merges many small batches into one folder of large files, and drops rows that are too old (PM-35).

Only the owner of the directory may call it. Once a merged batch is committed, readers leave out the batches it covers.
Readers that started earlier still read the old files, so these are removed later: at the next compaction, or after a
day.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.archive.commits import Span, commit, covered, visible
from share_metrics.archive.folders import confirmed
from share_metrics.archive.row_files import RowFiles, rows_in
from share_metrics.metrics.common import since
from share_metrics.reader import Kind

FILE_BYTES: Final = 64 << 20
#: How long a reader may still read replaced files; a report takes minutes.
_READ_MAX: Final = timedelta(days=1)


def compact(  # noqa: PLR0917 - what to compact, and when
    spark: SparkSession, data: Path, kind: Kind, at_least: int = 2, now: datetime | None = None, rows: str = ""
) -> Span | None:
    """Compact the small batches of a kind if there are at least `at_least`. Returns the new span, or None.

    Batches of FILE_BYTES or more are left unchanged, as are batches that Spark may still repeat. `rows`: see
    `RowFiles`.
    """
    small = _small(visible(data, kind), confirmed(data, kind))
    enough = len(small) >= at_least
    _remove_covered(spark, data, kind, None if enough else (now or datetime.now(UTC)) - _READ_MAX)
    if not enough:
        return None
    files = max(1, sum(span.size for span in small) // FILE_BYTES)
    return _replace(spark, data, kind, small, rows_in(spark, kind, small).coalesce(files), rows)


def trim(  # noqa: PLR0917 - what to trim, and how long to keep it
    spark: SparkSession, data: Path, kind: Kind, keep: timedelta, now: datetime | None = None, rows: str = ""
) -> Span | None:
    """Drop rows older than `keep`, in whole batches. Returns the span that replaces them; None if none are that old.

    Gaps are kept, and so are the share-state rows that give each share-partition's state at the start of the kept
    period (PM-32). All rows of groups are kept: a member may have joined at any time, and they are few.
    """
    before = ((now or datetime.now(UTC)) - keep).replace(minute=0, second=0, microsecond=0)
    old = _older(visible(data, kind), confirmed(data, kind), f"{before:%Y-%m-%dT%H}")
    if kind is Kind.GROUP or not old or all(span.trimmed for span in old):
        return None
    there = rows_in(spark, kind, old)
    kept = since(there, F.lit(before)) if kind is Kind.SHARE_STATE else there.where(F.col("ts").isNull())
    return _replace(spark, data, kind, old, kept.coalesce(1), rows, trimmed=True)


def trim_samples(data: Path, keep: timedelta, now: datetime | None = None) -> None:
    """Remove samples of log ends that are older than `keep`, in whole days."""
    first = (now or datetime.now(UTC)) - keep
    for folder in (data / "log_ends").glob("dt=????-??-??"):
        if folder.name[3:] < f"{first:%Y-%m-%d}":
            shutil.rmtree(folder)


def _replace(  # noqa: PLR0917 - the replaced and the new rows
    spark: SparkSession,
    data: Path,
    kind: Kind,
    old: Sequence[Span],
    made: DataFrame,
    rows: str,
    *,
    trimmed: bool = False,
) -> Span:
    first, last = old[0].first, old[-1].last
    found = RowFiles(spark, data, rows).write(kind, f"{first:08d}-{last:08d}", made)
    return commit(data, kind, (first, last), found, old[-1].positions, trimmed=trimmed)


def _small(shown: Sequence[Span], done: int) -> list[Span]:
    """The newest run of small spans; older ones are already large, or were trimmed."""
    small: list[Span] = []
    for span in reversed(shown):
        if span.last > done:
            continue
        if span.size >= FILE_BYTES or span.trimmed:
            break
        small.append(span)
    return small[::-1]


def _older(shown: Sequence[Span], done: int, hour: str) -> list[Span]:
    """The oldest run of spans whose rows were all appended before an hour."""
    older: list[Span] = []
    for span in shown:
        if span.last > done or not all(one < hour for one in span.hours):
            break
        older.append(span)
    return older


def _remove_covered(spark: SparkSession, data: Path, kind: Kind, before: datetime | None) -> None:
    """Remove the spans that were replaced before `before`; None removes all replaced spans."""
    for one, over in covered(data, kind):
        if before is not None and over.note.stat().st_mtime >= before.timestamp():
            continue
        folder = one.folder
        if one.note.is_file():
            one.note.unlink()  # first, so that no commit names removed files
        RowFiles(spark, data).remove(folder)
