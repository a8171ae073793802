"""Compares a page's lines on groups and their members with a story's ledger."""

from __future__ import annotations

import re
from math import inf
from typing import Final

import pytest
from pyspark.sql import SparkSession

from kip932.ids import topic_id_text
from share_metrics.metrics import episodes
from share_metrics.report import Known, Logs, Report, collect, render
from share_metrics.report.groups import group_lines

from .frames import BASE_S, groups
from .story import END, MINUTE, MINUTES, REPORTED, TOPICS, Story, at_time


@pytest.fixture(scope="module")
def story() -> Story:
    return Story()


#: The maximum number of Spark jobs for a page with every finding, in a session without adaptive plans.
JOBS_MAX: Final = 6


@pytest.fixture(scope="module")
def jobs() -> list[int]:
    """The number of jobs that the page took."""
    return []


@pytest.fixture(scope="module")
def report(spark: SparkSession, story: Story, jobs: list[int]) -> Report:
    reported = story.states(spark), groups(spark, REPORTED)
    logs = Logs(story.log_ends(spark))
    spark.sparkContext.setJobGroup("page", "a page")
    found = collect(*reported, at_time(0), at_time(END), logs=logs)
    jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup("page")))
    spark.sparkContext.setJobGroup("other", "what is behind it")
    return found


def test_a_page_takes_few_jobs(report: Report, jobs: list[int]) -> None:
    """Each job has to be planned and its tasks started, which is most of the time that a page with few rows takes."""
    for found in (report.stalls, report.poison, report.gaps):
        assert found, "a page without findings takes fewer"
    assert 0 < jobs[0] <= JOBS_MAX, jobs


@pytest.mark.rule("PM-90")
def test_each_group_has_its_lag_and_its_pace(story: Story, report: Report) -> None:
    """Arrivals in the first minute are unknown: the log's end before it was not recorded."""
    found = {line.group_id: line for line in group_lines(report.partitions, report.standing)}
    assert found.keys() == story.STREAMS.keys()
    for group, line in found.items():
        ledgers = story.of(group)
        minutes = range(1, MINUTES)
        arrived = sum(ledger.arrived_in[minute] for ledger in ledgers for minute in minutes)
        finished = sum(ledger.finished_in[minute] for ledger in ledgers for minute in minutes)
        assert (line.share_partitions, line.lag) == (len(ledgers), sum(ledger.lag for ledger in ledgers))
        assert not line.lag_least
        assert line.arrived_per_s == pytest.approx(arrived / (END - MINUTE))
        assert line.finished_per_s == pytest.approx(finished / (END - MINUTE))
    assert {group: line.drain_s for group, line in found.items()} == {
        "busy": inf,
        "stopped": inf,
        "left": inf,
        "done": 0,
    }
    assert {group: (line.state, line.members) for group, line in found.items()} == {
        "busy": ("Stable", 1), "stopped": ("Stable", 1), "left": ("Empty", 0), "done": (None, None)
    }  # fmt: skip


@pytest.mark.rule("PM-90")
def test_each_member_has_its_client_and_what_it_was_given(report: Report) -> None:
    shown = ("group_id", "member_id", "client_id", "client_host", "member_epoch", "has")
    assert [tuple(row[name] for name in shown) for row in report.members] == [
        ("busy", "a", "c", "h", 2, "orders: 0"),
        ("stopped", "a", "c", "h", None, ""),
    ]


@pytest.mark.rule("PM-90")
def test_a_standstill_is_reported_once_from_its_begin_to_its_end(story: Story, report: Report) -> None:
    (left,), (stopped,) = story.of("left"), story.of("stopped")
    until = f"{at_time(END):%H:%M:%S}"
    expected = [
        (topic_id_text(TOPICS[ledger.topic]), kind, f"{at_time(since):%H:%M:%S}", until, ledger.lag)
        for ledger, kind, since in ((stopped, "stalled", MINUTE * max(stopped.finished_in)),
                                    (left, "abandoned", MINUTE * max(left.finished_in)))
    ]  # fmt: skip
    found = [
        (row["topic_id"], row["kind"], row["since"][11:], row["until"][11:], row["lag"]) for row in report.episodes
    ]
    assert found == expected


@pytest.mark.rule("PM-90")
def test_a_standstill_that_is_broken_is_two(spark: SparkSession) -> None:
    windows = [(minute, 10 + minute) for minute in (5, 6, 7, 12, 13)]
    rows = [
        ("g", "t", 0, at_time(minute * MINUTE), lag, minute == 7, minute % 12 * MINUTE, "stalled")
        for minute, lag in windows
    ]
    kinds = (
        "group_id string, topic_id string, partition int, window timestamp, lag bigint, lag_least boolean, "
        "still_s bigint, kind string"
    )
    shown = ("unix_seconds(since)", "unix_seconds(until)", "lag", "lag_least")
    found = episodes(spark.createDataFrame(rows, kinds)).selectExpr(*shown)
    times = sorted((since - BASE_S, until - BASE_S, lag, least) for since, until, lag, least in found.collect())
    assert times == [(0, 8 * MINUTE, 17, True), (12 * MINUTE, 14 * MINUTE, 23, False)]


@pytest.mark.rule("PM-90")
def test_the_page_shows_both(report: Report) -> None:
    cells = [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", render(report))]
    assert ["stopped", "503", "never, at this pace", "Stable", "1", "1", "0.9", "0.0"] in cells
    assert ["done", "0", "nothing left", "–", "–", "1", "0.0", "0.0"] in cells
    assert ["busy", "c", "h", "a", "2", "orders: 0"] in cells


@pytest.mark.rule("PM-90")
def test_what_was_not_read_yet_is_not_taken_for_idleness(spark: SparkSession, story: Story) -> None:
    """An ingest that ended in the middle of a minute: rates cover the time until then."""
    read_to = 3 * MINUTE + 30
    known = Known(at_time(read_to), END - read_to)
    states = story.states(spark).where(f"ts < timestamp_seconds({at_time(read_to).timestamp()})")
    found = collect(
        states, groups(spark, REPORTED), at_time(0), at_time(END), logs=Logs(story.log_ends(spark)), known=known
    )
    lines = {line.group_id: line for line in group_lines(found.partitions, found.standing)}
    topic = topic_id_text(TOPICS["mails"])
    (stopped,) = [line for line in found.partitions if line.name == f"stopped · {topic}-0"]
    assert stopped.pace is not None
    assert stopped.pace == (500, 0, read_to - MINUTE)
    assert lines["stopped"].arrived_per_s == pytest.approx(500 / (read_to - MINUTE))
