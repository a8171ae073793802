"""Decides what a page is made of and how: in this process, or by Spark if there are many rows (PM-37, PM-110…PM-112).

Nothing here needs Spark, so that a page of few rows takes neither Java nor the time to start it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from share_metrics.archive.commits import visible
from share_metrics.archive.folders import FolderError
from share_metrics.archive.page_rows import NO_END, PageFiles, newest_time, watermarks
from share_metrics.archive.table_files import news_of
from share_metrics.ingest.log_samples import newest_sample
from share_metrics.ingest.read_up_to import read_up_to
from share_metrics.reader import Kind
from share_metrics.report.by_process import collect_here
from share_metrics.report.model import Report
from share_metrics.report.periods import READ_BACK, Known
from share_metrics.report.tables_by_process import write_tables_here
from share_metrics.surroundings import with_surroundings

#: A page that needs more rows than this, or larger files of its hours, is made by Spark.
ROWS_HERE_MAX: Final = 1_000_000
BYTES_HERE_MAX: Final = 512 << 20
KINDS: Final = (Kind.SHARE_STATE, Kind.GROUP)
_HOUR: Final = timedelta(hours=1)
_NEVER: Final = datetime.fromtimestamp(0, UTC)

Times = tuple[datetime | None, datetime | None]


class Engine(StrEnum):
    """What makes a page: this process, Spark, or whichever suits the number of rows."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class Asked(NamedTuple):
    """The period of a page before it is rounded to whole windows, and how much of it was read."""

    begin: datetime
    end: datetime
    known: Known


def engine_for(data: Path, times: Times, tables: bool = False) -> Engine:
    """What makes a page of `data`, and `tables`, unless an option names it: Spark if there are many rows, or if they
    are in another file system.

    Counts rows by the footers of files, whose names show their hours. Raises FolderError if they cannot be read.
    """
    pieces = [one for kind in KINDS for span in visible(data, kind) for one in span.pieces]
    if any("://" in one.path and not one.path.startswith("file://") for one in pieces):
        return Engine.SPARK
    newest = max((one.hour for one in pieces), default="")
    end = times[1] or (datetime.fromisoformat(f"{newest}:00+00:00") + _HOUR if newest else datetime.now(UTC))
    begin = times[0] or end - 2 * _HOUR
    with _readable(data):
        if tables:
            news = news_of(data, datetime.now(UTC))
            begin, end = min([begin, *news.first.values()]), max(end, NO_END)
        files = PageFiles(data, begin - READ_BACK, end)
        few = files.size <= BYTES_HERE_MAX and files.weigh(ROWS_HERE_MAX) <= ROWS_HERE_MAX
    return Engine.LOCAL if few else Engine.SPARK


def collected_here(
    data: Path, times: Times, window_s: int, notify: Callable[[str], None], tables: bool = False
) -> Report:
    """The report on the rows in `data`, made in this process; by default on the hour that ends with the window of the
    newest entry.

    `tables`: store windows as Parquet too (PM-35). Raises FolderError if nothing was ingested yet or rows cannot be
    read, ValueError if the start is not before the end.
    """
    check_ingested(data)
    with _readable(data):
        begin, end, known = asked_for(data, times, window_s, times[1] or _newest(data))
        if tables:
            notify("Keeping windows …")
            write_tables_here(data, datetime.now(UTC))
        notify("Collecting …")
        found = collect_here(data, begin, end, window_s, known)
        return with_surroundings(found, data, begin, end, known.until)


@contextmanager
def _readable(data: Path) -> Iterator[None]:
    """Turn the errors of files that cannot be read into a FolderError."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise FolderError(f"rows in {data} cannot be read: {error}; restore its files, or ingest again") from error


def check_ingested(data: Path) -> None:
    """Raise FolderError if nothing was ingested into the directory yet."""
    if not any(visible(data, kind) for kind in KINDS):
        raise FolderError(
            f"nothing was ingested into {data} yet; run `sharegroups metrics ingest --store URL --data {data}` first"
        )


def asked_for(data: Path, times: Times, window_s: int, newest: datetime) -> Asked:
    """The period of a page: by default the hour that ends with the window of the time `newest`.

    `newest`: the requested end, or else when the newest entry was written. Without a note of what was read, nothing
    counts as completely read. Raises ValueError if the start is not before the end.
    """
    end = times[1] or datetime.fromtimestamp((newest.timestamp() // window_s + 1) * window_s, UTC)
    begin = times[0] or end - _HOUR
    if begin >= end:
        raise ValueError(f"--from {begin.isoformat()} is not before the end, {end.isoformat()}")
    now = datetime.now(UTC)
    at = read_up_to(data, now)
    behind = min(newest, now) - (begin if at is None else at)
    return Asked(begin, end, Known(at or _NEVER, max(0, int(behind.total_seconds()))))


def _newest(data: Path) -> datetime:
    """When the newest entry was written; now if there is none.

    If the newest sample is later and shows records above the high watermark that a share-partition's writes report,
    returns the time of that sample, since the share-partition may have stalled.
    """
    now = datetime.now(UTC)
    at = newest_time(data) or now
    read = read_up_to(data, now)
    seen = newest_sample(data, read) if read is not None else None
    if seen is None or seen[0] <= at:
        return at
    ends = {(end.topic_id, end.partition): end.high_watermark or 0 for end in seen[1]}
    waiting = any(ends.get(log, 0) > hwm for log, hwm in watermarks(data).items())
    return seen[0] if waiting else at
