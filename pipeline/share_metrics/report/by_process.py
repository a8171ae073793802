"""Collects a page in this process, without Spark, from the rows that were ingested into a directory (PM-111)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow.compute as pc

from share_metrics.archive.commits import visible
from share_metrics.archive.page_rows import PageFiles, log_batches
from share_metrics.ingest.log_samples import stored_samples
from share_metrics.reader import Kind
from share_metrics.replay.measuring import EVERY
from share_metrics.report.assembled import assembled
from share_metrics.report.figures import Around, Figures, ages_s, figures_of, first_due
from share_metrics.report.group_figures import COLUMNS, group_figures
from share_metrics.report.model import Report
from share_metrics.report.periods import READ_BACK, Known, period_of
from share_metrics.report.seen_ends import (
    APPEND_COLUMNS,
    BATCH_COLUMNS,
    batch_sums,
    earliest,
    first_appends,
    limits_of,
    merged,
    seen_ends,
)


def collect_here(data: Path, begin: datetime, end: datetime, window_s: int, known: Known) -> Report:
    """The report from `begin` to `end` on the rows in `data`; `by_spark.collect` gives the same.

    One part of the streams is in memory at a time.
    """
    period = period_of(begin, end, window_s, known)
    files, limits = PageFiles(data, period.begin - READ_BACK, period.end), limits_of(period)
    groups = group_figures(files.groups(COLUMNS).to_batches(), period)
    batches = pc.field("ts") < pc.scalar(period.end)
    sums = merged(batch_sums(rows, limits) for rows in log_batches(data, BATCH_COLUMNS, batches))
    samples = stored_samples(data, begin - READ_BACK, period.end)
    around = Around(period, seen_ends(samples, sums, limits), groups.live)
    figures = Figures()
    for rows in files.states():
        figures.merge(figures_of(rows.select(list(EVERY.needed)).to_batches(), around))
    ages = {}
    if visible(data, Kind.LOG_META):
        wanted = first_due(figures)
        parts = log_batches(data, APPEND_COLUMNS) if wanted else ()
        ages = ages_s(figures, earliest(first_appends(rows, wanted) for rows in parts), period)
    return assembled(period, figures, groups, ages, known.behind_s)
