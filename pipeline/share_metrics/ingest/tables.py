"""Writes windows as Parquet, starting at the first hour with new rows, overwriting older results (PM-2, PM-33, PM-35).

    metrics/<table>/size=1m|1h/dt=…/hour=…

There is a folder for each hour, so that new rows in one hour do not rewrite its whole day. metrics/read.json holds the
numbers of the last batches read; the ids of their queries, because a new query starts at number 0; and the time of the
last sample of log ends that was used. It is written after the tables, so that a killed job only repeats work.

Lag depends on samples and on rows of `log_meta` too: `progress` and `lag` are also recomputed starting at the hour of
that sample, and at the first hour with new rows of `log_meta`. `lag` has all
windows up to the time up to which everything was read, including those in which nothing was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.archive.commits import visible
from share_metrics.archive.folders import query_id
from share_metrics.archive.window_rows import states_of
from share_metrics.ingest.log_samples import newest_sample, samples
from share_metrics.ingest.read_up_to import read_up_to
from share_metrics.ingest.writing import KINDS, stored
from share_metrics.metrics import (
    LogEnds,
    fill_windows,
    group_windows,
    known_ends,
    progress,
    replay_windows,
    with_log_ends,
)
from share_metrics.metrics.common import KEY, since
from share_metrics.metrics.stalls import deletions
from share_metrics.reader import Kind
from share_metrics.report.periods import READ_BACK

WINDOWS: Final = {"1m": 60, "1h": 3_600}
#: What the folders of windows are called before their size. The files have a column `window`, so a reader that takes
#: columns from the names of folders would find two of them in folders of that name, which earlier builds wrote.
_SIZE: Final = "size="
_SIZE_BEFORE: Final = "window="
_QUERIES: Final = "queries"
_HOUR: Final = len("2026-11-22T08")
_SAMPLED: Final = "log_ends"
_TABLES: Final[dict[str, tuple[Kind, Callable[[DataFrame, int], DataFrame]]]] = {
    "replay": (Kind.SHARE_STATE, replay_windows),
    "groups": (Kind.GROUP, group_windows),
}
_LAG: Final = (*KEY, "window", "last_lag", "lag_least", "gone")


def write_tables(spark: SparkSession, data: Path) -> list[str]:
    """Recompute starting at the first hour with new rows. Returns the hours with new rows, as 2026-11-22T08."""
    note = data / "metrics" / "read.json"
    rename_folders(data / "metrics")
    before: dict[str, Any] = json.loads(note.read_text()) if note.exists() else {}
    read: dict[str, Any] = {kind: _last_read(before, data, kind) for kind in KINDS}
    touched: set[str] = set()
    lagging: set[str] = set()
    for kind in KINDS:
        news = [span for span in visible(data, kind) if span.last > read[kind]]
        hours = {hour for span in news for hour in span.hours}
        if news:
            read[kind] = news[-1].last
        for name, (of, compute) in _TABLES.items():
            if hours and of is kind:
                _write(spark, data, kind, name, compute, min(hours))
        touched |= hours
        lagging |= hours if kind is Kind.SHARE_STATE else set()
    read[Kind.LOG_META] = _last_read(before, data, Kind.LOG_META)
    news = [span for span in visible(data, Kind.LOG_META) if span.last > read[Kind.LOG_META]]
    if news:  # batches that were appended during an outage of the ingest change the lag of its windows
        read[Kind.LOG_META] = news[-1].last
        lagging |= {hour for span in news for hour in span.hours}
    read |= _write_lag(spark, data, lagging, before.get(_SAMPLED))
    note.parent.mkdir(parents=True, exist_ok=True)
    new = note.with_suffix(".new")
    new.write_text(json.dumps({**read, _QUERIES: {kind: query_id(data, kind) for kind in (*KINDS, Kind.LOG_META)}}))
    new.replace(note)
    return sorted(touched)


def rename_folders(metrics: Path) -> None:
    """Give the folders of windows that an earlier build wrote their present name (PM-97)."""
    for folder in sorted(metrics.glob(f"*/{_SIZE_BEFORE}*")):
        folder.rename(folder.with_name(_SIZE + folder.name.removeprefix(_SIZE_BEFORE)))


def _write_lag(spark: SparkSession, data: Path, touched: set[str], sampled: str | None) -> dict[str, str]:
    """Write `progress` and `lag` starting at the first of the touched hours, or at that of the last sample used.

    Returns the time of the last sample used now, under _SAMPLED; empty if there is none.
    """
    known_until = read_up_to(data, datetime.now(UTC))
    until = known_until or datetime.fromtimestamp(0, UTC)
    newest = newest_sample(data, until)
    at = newest[0].isoformat() if newest else sampled
    again = {sampled[:_HOUR]} if sampled and sampled != at else set()
    hours = touched | again
    if hours:
        first = datetime.fromisoformat(f"{min(hours)}:00").replace(tzinfo=UTC)
        seen = samples(spark, data, first - READ_BACK, until + timedelta(microseconds=1)).localCheckpoint()
        batches = stored(spark, data, Kind.LOG_META) if visible(data, Kind.LOG_META) else None

        def ends_of(window_s: int) -> LogEnds:
            return known_ends(seen, batches, window_s, until, first - READ_BACK)

        def with_lag(recent: DataFrame, window_s: int) -> DataFrame:
            return with_log_ends(progress(recent, window_s), ends_of(window_s), window_s)

        def lag(recent: DataFrame, window_s: int) -> DataFrame:
            end = datetime.fromtimestamp(-(-until.timestamp() // window_s) * window_s, UTC)
            windows = progress(recent, window_s)
            filled = fill_windows(windows, window_s, first, end, deletions(recent, window_s), ends_of(window_s))
            known = filled.where(F.col("window") < F.lit(until))
            return known.select(*_LAG).withColumnRenamed("last_lag", "lag")

        for name, compute in {"progress": with_lag, **({"lag": lag} if known_until else {})}.items():
            _write(spark, data, Kind.SHARE_STATE, name, compute, min(hours))
    return {_SAMPLED: at} if at else {}


def _last_read(before: dict[str, Any], data: Path, kind: Kind) -> int:
    """The number of the last batch that was read; −1 if it was a batch of a query other than the current one.

    The note of an earlier build has no query id; in it, a number beyond the existing batches means another query.
    """
    last = int(before.get(kind, -1))
    query = before.get(_QUERIES, {}).get(kind, "")
    there = visible(data, kind)
    other_query = query not in {"", query_id(data, kind)} or last > max((span.last for span in there), default=-1)
    return -1 if other_query else last


def _write(  # noqa: PLR0917 - the parts of a table
    spark: SparkSession,
    data: Path,
    kind: Kind,
    name: str,
    compute: Callable[[DataFrame, int], DataFrame],
    hour: str,
) -> None:
    first = datetime.fromisoformat(f"{hour}:00").replace(tzinfo=UTC)
    if kind is Kind.SHARE_STATE:
        back = first - READ_BACK
        recent = since(states_of(spark, data, back), F.lit(back))
    else:  # a member may have joined at any time, so all rows of groups are read; their logs are short
        recent = stored(spark, data, kind)
    table = data / "metrics" / name
    for window, window_s in WINDOWS.items():
        fresh = compute(recent, window_s).where(F.col("window") >= F.lit(first))
        dated = fresh.withColumn("dt", F.date_format("window", "yyyy-MM-dd"))
        # The session overwrites only partitions that have rows, so earlier hours do not change.
        writer = dated.withColumn("hour", F.date_format("window", "HH")).coalesce(1).write.mode("overwrite")
        writer.partitionBy("dt", "hour").parquet(str(table / f"{_SIZE}{window}"))
