"""Writes the tables of windows with Spark, starting at the first hour with new rows (PM-2, PM-33, PM-35, PM-114).

The rows of each stream are passed over once, where they are, by the core that a process without Spark uses. A task
writes its files beside the tables; the driver puts those of the tasks that succeeded in their places.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.archive.commits import visible
from share_metrics.archive.table_files import keep_only, news_of, rename_folders, replacing, write_rows
from share_metrics.archive.window_rows import states_of
from share_metrics.ingest.log_samples import stored_samples
from share_metrics.ingest.writing import stored
from share_metrics.metrics.common import since
from share_metrics.reader import Kind
from share_metrics.report.by_spark import found_by_stream, found_by_task
from share_metrics.report.group_figures import COLUMNS
from share_metrics.report.periods import READ_BACK
from share_metrics.report.seen_ends import BATCH_COLUMNS, Limits, batch_sums, limits_of, merged, seen_ends
from share_metrics.report.window_tables import (
    OF_STATES,
    PARTS,
    SIZES,
    SeenLogs,
    TableTimes,
    group_tables,
    state_tables,
)

_NEVER: Final = datetime.fromtimestamp(0, UTC)


def write_tables(spark: SparkSession, data: Path) -> list[str]:
    """Recompute starting at the first hour with new rows. Returns the hours with new rows, as 2026-11-22T08."""
    rename_folders(data / "metrics")
    news = news_of(data, datetime.now(UTC))
    times = TableTimes(news.first, news.until or _NEVER)
    if news.first:
        with replacing(data) as new:
            names: list[str] = []
            if any(name in news.first for name in OF_STATES):
                back = times.begin - READ_BACK
                states = since(states_of(spark, data, back), F.lit(back))
                write = partial(_write_states, new=new, times=times, logs=_logs(spark, data, times))
                names += [name for task in found_by_stream(states, PARTS.needed, write) for name in task]
            if "groups" in news.first:  # a member may have joined at any time, so all rows of groups are read
                groups = stored(spark, data, Kind.GROUP)
                write = partial(_write_groups, new=new, times=times)
                names += [name for task in found_by_stream(groups, COLUMNS, write) for name in task]
            keep_only(new, names)
    news.write(data)
    return news.hours


def _write_states(batches: Iterable[Any], new: Path, times: TableTimes, logs: SeenLogs) -> list[str]:
    return write_rows(new, state_tables([batches], times, logs))


def _write_groups(batches: Iterable[Any], new: Path, times: TableTimes) -> list[str]:
    return write_rows(new, group_tables(list(batches), times))


def _logs(spark: SparkSession, data: Path, times: TableTimes) -> SeenLogs:
    """What was seen of the logs' ends up to the ends of windows, by the name of their size."""
    samples = stored_samples(data, times.begin - READ_BACK, times.read_until + timedelta(microseconds=1))
    limits = {size: limits_of(times.period(window_s)) for size, window_s in SIZES.items()}
    tasks: list[dict[str, Any]] = []
    if visible(data, Kind.LOG_META):
        batches = stored(spark, data, Kind.LOG_META).select(*BATCH_COLUMNS)
        tasks = list(found_by_task(batches, partial(_sums, limits=limits)))
    return {size: seen_ends(samples, merged(task[size] for task in tasks), one) for size, one in limits.items()}


def _sums(batches: Iterable[Any], limits: dict[str, Limits]) -> dict[str, Any]:
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return {size: merged(batch_sums(rows, one) for rows in tables) for size, one in limits.items()}
