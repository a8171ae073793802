"""Compares the SQL views on literal rows with a ledger that counts independently of the pipeline."""

from __future__ import annotations

from collections import Counter
from math import ceil
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from kip932.ids import topic_id_text
from share_metrics.archive.folders import FolderError
from share_metrics.questions import QUESTIONS
from share_metrics.reader import EntryId, Kind
from share_metrics.reader.decoding import decode
from share_metrics.views import Rows, Times, register_history, register_views
from tests.support.pipeline_entries import state_entry

from .frames import BASE_S, frame, groups
from .story import END, LIMIT, MINUTE, MINUTES, REPORTED, TOPICS, Ledger, Story, at_time

#: The time at which the views are made, in seconds after BASE_S.
MADE: Final = END + 30
TIMES: Final = Times(at_time(0), at_time(END), at_time(MADE))


@pytest.fixture(scope="module")
def story() -> Story:
    return Story()


@pytest.fixture(scope="module")
def asked(spark: SparkSession, story: Story) -> SparkSession:
    """A session with the views of the story."""
    rows = Rows(story.states(spark), groups(spark, REPORTED), story.log_ends(spark))
    assert register_views(rows, TIMES) == TIMES
    return spark


def answer(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=str)


def near(value: object) -> Any:
    return pytest.approx(value)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.view)
def test_a_view_has_the_columns_that_it_shows(asked: SparkSession, question: Any) -> None:
    assert asked.table(question.view).columns == list(question.columns)
    assert asked.table(question.view).count() > 0


@pytest.mark.rule("PM-89")
def test_how_far_behind_each_group_is(asked: SparkSession, story: Story) -> None:
    expected = [
        (group, len(story.of(group)), sum(ledger.lag for ledger in story.of(group)), 0, False, 0)
        for group in sorted(story.STREAMS)
    ]
    assert answer(asked, "SELECT * FROM share_lag") == expected
    assert [row[2] for row in expected] == [18, 0, 503, 503]


@pytest.mark.rule("PM-89")
def test_whether_each_group_keeps_up(asked: SparkSession, story: Story) -> None:
    """Arrivals in the first window are unknown: the log's end before it was not recorded."""
    seconds, expected = END - MINUTE, []
    for group in sorted(story.STREAMS):
        arrived, finished = (
            sum(counts[minute] for ledger in story.of(group) for counts in (getattr(ledger, name),)
                for minute in range(1, MINUTES))
            for name in ("arrived_in", "finished_in")
        )  # fmt: skip
        lag = sum(ledger.lag for ledger in story.of(group))
        drain = 0.0 if lag == 0 else None
        expected.append((group, arrived, finished, near(arrived / seconds), near(finished / seconds), lag, drain))
    assert answer(asked, "SELECT * FROM share_pace") == expected
    assert [row[1:3] for row in expected] == [(9 * 27, 9 * 25 + 2), (0, 0), (500, 0), (500, 0)]


@pytest.mark.rule("PM-89")
def test_when_a_group_that_gains_will_have_caught_up(spark: SparkSession) -> None:
    ledger = Ledger("g", "orders")
    ledger.produce(5, 100)
    ledger.accept(10, 10)
    ledger.produce(65, 10)
    ledger.accept(70, 40)
    ledger.accept(130, 30)
    entries = [
        state_entry(EntryId(1, seq), one, (BASE_S + at) * 1000) for seq, (at, one) in enumerate(ledger.written, 1)
    ]
    own = spark.newSession()
    rows = frame(own, Kind.SHARE_STATE, [decode(Kind.SHARE_STATE, entry) for entry in entries])
    shown = register_views(Rows(rows, groups(own, REPORTED[:1])))
    assert (shown.begin, shown.at) == (at_time(131 - 3600), at_time(131))  # the hour that ends after the newest row
    # In the 71 s from the second window on, 10 arrived and 70 were finished; 30 are left.
    (row,) = answer(own, "SELECT arrived, finished, lag, drain_s FROM share_pace")
    assert row == (10, 70, 30, near(30 * 71 / 60))


@pytest.mark.rule("PM-89")
def test_what_was_not_seen_is_unknown_and_not_0(spark: SparkSession, story: Story) -> None:
    """Without samples, an old watermark from a leader gives only a lower bound of a lag, and a lag of 0 becomes
    unknown."""
    own = spark.newSession()
    register_views(Rows(story.states(own), groups(own, REPORTED)), TIMES)
    assert answer(own, "SELECT group_id, lag, unknown, at_least FROM share_lag") == [
        ("busy", 18, 0, False),
        ("done", None, 1, True),
        ("left", 3, 0, True),
        ("stopped", 3, 0, True),
    ]
    assert answer(own, "SELECT group_id, drain_s FROM share_pace WHERE group_id = 'done'") == [("done", None)]


@pytest.mark.rule("PM-89")
def test_who_is_stuck_and_since_when(asked: SparkSession, story: Story) -> None:
    expected = [
        (ledger.group, topic, 0, kind, ledger.lag, BASE_S + MINUTE * max(ledger.finished_in))
        for group, topic, kind in (("left", topic_id_text(TOPICS["logs"]), "abandoned"),
                                   ("stopped", topic_id_text(TOPICS["mails"]), "stalled"))
        for ledger in story.of(group)
    ]  # fmt: skip
    query = "SELECT group_id, topic, partition, kind, lag, unix_seconds(since) FROM share_stuck"
    assert answer(asked, query) == expected


@pytest.mark.rule("PM-89")
def test_which_records_failed_and_why(asked: SparkSession, story: Story) -> None:
    expected = [
        ("busy", "orders", ledger.partition, offset, reason, "Archived", count)
        for ledger in story.all
        for offset, reason, count in ledger.failed
    ]
    (near_limit,) = (
        (ledger.partition, ledger.start, ledger.deliveries[ledger.start])
        for ledger in story.of("busy")
        if ledger.deliveries[ledger.start] >= LIMIT - 1
    )
    partition, offset, count = near_limit
    expected.append(("busy", "orders", partition, offset, "one delivery left", "Available", count))
    query = "SELECT group_id, topic, partition, offset, reason, state, delivery_count FROM share_failed"
    assert answer(asked, query) == sorted(expected, key=str)
    assert {row[4] for row in expected} == {"rejected", "delivery limit", "one delivery left"}


@pytest.mark.rule("PM-89", "PM-96")
def test_how_much_is_delivered_more_than_once(asked: SparkSession, story: Story) -> None:
    busy = story.of("busy")
    names = ("finished", "redelivered", "released", "given_back", "timed_out")
    finished, redelivered, *returned = (sum(getattr(ledger, name) for ledger in busy) for name in names)
    expected = ("busy", "orders", finished, redelivered, near(redelivered / finished), *returned)
    assert answer(asked, "SELECT * FROM share_redelivery WHERE group_id = 'busy'") == [expected]
    assert min(redelivered, *returned) > 0


@pytest.mark.rule("PM-89")
def test_where_released_records_took_longest(asked: SparkSession, story: Story) -> None:
    """For each share-partition, the window with the longest wait; among equals, the last."""
    expected = []
    for ledger in story.of("busy"):
        longest, minute = max((max(waited), minute) for minute, waited in ledger.waited_ms.items())
        waited = sorted(ledger.waited_ms[minute])
        at = [waited[ceil(share * len(waited)) - 1] for share in (0.5, 0.95, 0.99)]
        assert at[-1] == longest
        expected.append(("busy", "orders", ledger.partition, BASE_S + minute * MINUTE, *at))
    query = (
        "SELECT group_id, topic, partition, unix_seconds(window), p50_ms, p95_ms, p99_ms FROM share_release_to_final"
    )
    found = answer(asked, query)
    assert found == expected
    assert found[1][4] < found[1][5]


@pytest.mark.rule("PM-89")
def test_when_work_was_shared_out_again_and_how_long_that_took(asked: SparkSession) -> None:
    found = answer(asked, "SELECT group_id, assignment_epoch, unix_seconds(computed_at), took_ms FROM share_rebalances")
    assert found == [
        ("busy", 1, BASE_S + 2, 3000),
        ("busy", 2, BASE_S + 90, 7000),  # the new member is the last to adopt it
        ("busy", 3, BASE_S + 200, None),
    ]


@pytest.mark.rule("PM-89")
def test_whose_members_come_and_go(asked: SparkSession) -> None:
    assert answer(asked, "SELECT * FROM share_churn") == [
        ("busy", 2, 1, 1, 0, 0, 1, "Stable"),
        ("left", 1, 1, 0, 1, 0, 0, "Empty"),
        ("stopped", 1, 0, 0, 0, 0, 1, "Stable"),
    ]


@pytest.mark.rule("PM-89")
def test_whether_the_state_is_spread_evenly(asked: SparkSession, story: Story) -> None:
    entries = Counter(story.STREAMS[ledger.group] for ledger in story.all for _ in ledger.written)
    keys = Counter(story.STREAMS[ledger.group] for ledger in story.all)
    skew = max(entries.values()) / (sum(entries.values()) / len(entries))
    # Half of the mean difference between two streams, divided by the mean.
    gini = (max(entries.values()) - min(entries.values())) / 2 / sum(entries.values())
    found = answer(asked, "SELECT stream, entries, keys, skew, gini FROM share_skew")
    assert found == [(name, entries[name], keys[name], near(skew), near(gini)) for name in sorted(entries)]


@pytest.mark.rule("PM-89")
def test_how_old_it_is_and_what_is_missing(asked: SparkSession, story: Story) -> None:
    found = answer(asked, "SELECT kind, stream, entries, age_s, lost FROM share_freshness")
    expected: list[tuple[Any, ...]] = [("group", "{gc:0}:log", len(REPORTED), near(MADE - REPORTED[-1][0]), 0)]
    for stream in sorted(set(story.STREAMS.values())):
        times = [at for ledger in story.all if story.STREAMS[ledger.group] == stream for at, _ in ledger.written]
        expected.append(("share_state", stream, len(times), near(MADE - max(times)), 0))
    assert found == [*expected, ("share_state", story.LOST.stream, 0, None, story.LOST.lost)]


def test_views_that_end_before_they_begin_are_refused(spark: SparkSession, story: Story) -> None:
    rows = Rows(story.states(spark), groups(spark, REPORTED))
    with pytest.raises(ValueError, match="cannot begin at 1970-01-01T10:10:00"):
        register_views(rows, Times(at_time(END), at_time(END), at_time(MADE)))


def test_a_directory_without_rows_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=f"nothing was ingested into {tmp_path} yet; run"):
        register_history(spark, tmp_path)
