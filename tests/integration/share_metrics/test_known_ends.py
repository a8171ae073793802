"""Compares the lag at the end of each window with what was appended by then, also while nothing was ingested."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from kip932.ids import topic_id_text
from share_metrics.ingest.log_samples import COLUMNS
from share_metrics.metrics import fill_windows, known_ends, lag_seconds, progress
from share_metrics.reader import Kind
from share_metrics.reader.schemas import GAP
from tests.support.pipeline_entries import KEY, TOPIC, snapshot

from .frames import BASE_S, frame, rows_of, states

#: The windows end a minute apart, up to here.
END: Final = 420
MINUTE: Final = 60
#: A batch: when it was appended, s; its first offset; the offset after it.
Batch = tuple[int, int, int]
#: A sample: when it was taken, s; the end of the log then.
Sample = tuple[int, int]
FIRST: Final[Batch] = (5, 0, 100)
#: What came while nothing was sampled, between 30 s and 390 s.
OUTAGE: Final[list[Batch]] = [FIRST, (130, 100, 200), (250, 200, 300)]
SAMPLES: Final[list[Sample]] = [(30, 100), (390, 300)]


def time(second: int) -> datetime:
    return datetime.fromtimestamp(BASE_S + second, UTC)


def batches(spark: SparkSession, *logs: list[Batch]) -> DataFrame:
    """Return rows of `log_meta`; the logs are those of partitions 0, 1, …"""
    rows: list[dict[str, Any]] = [
        {
            "stream": f"{{tp:{topic_id_text(TOPIC)}:{index}}}:log", "entry_id": f"1-{end}", "epoch": 1, "seq": end,
            "ts": time(at), "record_type": "batch", "topic_id": topic_id_text(TOPIC), "partition": index,
            "base_offset": base, "last_offset": end - 1, "record_count": end - base, "log_end_offset": end,
        }
        for index, log in enumerate(logs) for at, base, end in log
    ]  # fmt: skip
    return frame(spark, Kind.LOG_META, rows)


def samples(spark: SparkSession, *logs: list[Sample]) -> DataFrame:
    rows = [(topic_id_text(TOPIC), index, 0, end, end, time(at)) for index, log in enumerate(logs) for at, end in log]
    return spark.createDataFrame(rows, COLUMNS)


def lags(windows: DataFrame, count: int) -> list[list[tuple[int | None, bool]]]:
    """Return, for each partition, lag and whether it is only a lower bound, by window."""
    found: list[list[tuple[int | None, bool]]] = [[] for _ in range(count)]
    for row in rows_of(windows, "partition", "window"):
        found[row["partition"]].append((row["last_lag"], row["lag_least"]))
    return found


def windows_of(spark: SparkSession, count: int) -> DataFrame:
    """Return the windows of `count` share-partitions of which nothing is finished and no leader wrote a watermark."""
    return progress(states(spark, [(0, snapshot(0, key=KEY._replace(partition=index))) for index in range(count)]))


def exact(*values: int) -> list[tuple[int, bool]]:
    return [(value, False) for value in values]


@pytest.mark.rule("PM-42", "PM-95")
def test_the_lag_of_an_outage_is_what_was_appended_by_then(spark: SparkSession) -> None:
    """Of each log, the batches are read: all; without some that were trimmed; up to the second one; by an owner whose
    clock was slow; of a topic that was empty before. Of the last one nothing is read."""
    logs = [
        OUTAGE,
        [FIRST, (250, 200, 300)],
        [FIRST, (130, 100, 200)],
        [FIRST, (250, 100, 200), (190, 200, 300)],
        [(250, 0, 100)],
        [],
    ]
    sampled = [*[SAMPLES] * 4, [(390, 100)], SAMPLES]
    ends = known_ends(samples(spark, *sampled), batches(spark, *logs), begin=time(0))
    found = lags(fill_windows(windows_of(spark, len(logs)), MINUTE, end=time(END), ends=ends), len(logs))
    assert found[0] == exact(100, 100, 200, 200, 300, 300, 300)
    assert found[1] == [*exact(100, 100), (100, True), (100, True), *exact(300, 300, 300)], "99 or 199 in between"
    assert found[2] == [*exact(100, 100, 200), (200, True), (200, True), (200, True), (300, False)]
    assert found[3] == exact(100, 100, 100, 100, 300, 300, 300), "it counts from the largest time before it"
    assert found[4] == exact(0, 0, 0, 0, 100, 100, 100)
    assert found[5] == [*exact(100, 100), *[(100, True)] * 4, (300, False)]


@pytest.mark.rule("PM-42", "PM-95")
def test_a_later_sample_of_the_same_end_shows_that_nothing_came(spark: SparkSession) -> None:
    ends = known_ends(samples(spark, [(30, 100), (390, 100)], [(390, 0)], [(390, 5)]))
    found = lags(fill_windows(windows_of(spark, 3), MINUTE, end=time(END), ends=ends), 3)
    assert found == [exact(*[100] * 7), [*[(None, False)] * 6, (0, False)], [*[(None, False)] * 6, (5, False)]]


@pytest.mark.rule("PM-42", "PM-95")
def test_in_the_window_that_was_read_in_part_the_lag_is_that_of_then(spark: SparkSession) -> None:
    """The ingest has read everything up to 265 s; a batch of 270 s is read too, and what was finished by then is not
    known."""
    log = [FIRST, (130, 100, 200), (250, 200, 300), (270, 300, 900)]
    until = time(265)
    ends = known_ends(samples(spark, [(30, 100), (262, 300), (270, 900)]), batches(spark, log), MINUTE, until, time(0))
    filled = fill_windows(windows_of(spark, 1), MINUTE, end=time(300), ends=ends)
    assert lags(filled, 1) == [exact(100, 100, 200, 200, 300)]
    ends = known_ends(samples(spark, [(262, 300)]), batches(spark, log), 3_600, until, time(0))
    hourly = fill_windows(windows_of(spark, 1), 3_600, end=time(3_600), ends=ends)
    assert lags(hourly, 1) == [exact(300)], "it is as of 265 s, and not an hour old"
    aged = lag_seconds(hourly, batches(spark, log), 3_600, until)
    assert [row["lag_seconds"] for row in rows_of(aged, "window")] == [260.0]


@pytest.mark.rule("PM-11", "PM-95")
def test_rows_that_are_no_batches_show_no_end(spark: SparkSession) -> None:
    gap = {"stream": "s", "entry_id": "1-1", "epoch": 1, "seq": 1, "record_type": GAP, "error": "{}"}
    ends = known_ends(None, frame(spark, Kind.LOG_META, [gap]))
    assert ends.marks is not None
    assert ends.marks.count() == 0
    assert known_ends(None).marks is None
