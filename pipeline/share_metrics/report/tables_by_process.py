"""Writes the tables of windows in this process, without Spark, from the rows that were ingested (PM-114)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from share_metrics.archive.page_rows import NO_END, PageFiles, log_batches
from share_metrics.archive.table_files import News, news_of, rename_folders, replacing, write_rows
from share_metrics.ingest.log_samples import stored_samples
from share_metrics.report.group_figures import COLUMNS
from share_metrics.report.periods import READ_BACK
from share_metrics.report.seen_ends import BATCH_COLUMNS, batch_sums, limits_of, merged, seen_ends
from share_metrics.report.window_tables import (
    OF_STATES,
    PARTS,
    SIZES,
    Found,
    SeenLogs,
    TableTimes,
    group_tables,
    state_tables,
)

_NEVER: Final = datetime.fromtimestamp(0, UTC)


def write_tables_here(data: Path, now: datetime) -> list[str]:
    """Write the tables again, starting at the first hour with new rows. Returns the hours with new rows.

    The rows of one part of the streams are in memory at a time. Raises OSError or an error of pyarrow's if rows cannot
    be read, FolderError if tables cannot be written.
    """
    rename_folders(data / "metrics")
    news = news_of(data, now)
    if news.first:
        with replacing(data) as new:
            write_rows(new, _found(data, news))
    news.write(data)
    return news.hours


def _found(data: Path, news: News) -> Iterator[Found]:
    times = TableTimes(news.first, news.until or _NEVER)
    if any(name in news.first for name in OF_STATES):
        files = PageFiles(data, times.begin - READ_BACK, NO_END)
        parts = (rows.select(list(PARTS.needed)).to_batches() for rows in files.states())
        yield from state_tables(parts, times, _logs(data, times))
    if "groups" in news.first:  # a member may have joined at any time, so all rows of groups are read
        rows = PageFiles(data, news.first["groups"], NO_END).groups(COLUMNS)
        yield from group_tables(rows.to_batches(), times)


def _logs(data: Path, times: TableTimes) -> SeenLogs:
    """What was seen of the logs' ends up to the ends of windows, by the name of their size."""
    samples = stored_samples(data, times.begin - READ_BACK, times.read_until + timedelta(microseconds=1))
    limits = {size: limits_of(times.period(window_s)) for size, window_s in SIZES.items()}
    sums: dict[str, list[Any]] = {size: [] for size in SIZES}
    for rows in log_batches(data, BATCH_COLUMNS):
        for size, one in limits.items():
            sums[size].append(batch_sums(rows, one))
    return {size: seen_ends(samples, merged(sums[size]), one) for size, one in limits.items()}
