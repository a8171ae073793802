"""The figures of topics."""

from __future__ import annotations

import pytest

from kip932.ids import TopicIdPartition
from partition_leader.progress.core.topics import AppendedByTopic, TopicFigures
from partition_leader.topic_log.core.appended import AppendedRecords

T, U = b"t" * 16, b"u" * 16


def appended(records: int) -> AppendedRecords:
    made = AppendedRecords()
    made.records = records
    return made


@pytest.mark.rule("PL-955")
def test_a_sum() -> None:
    assert TopicFigures(1, 2, 3).plus(TopicFigures(10, 20, 30)) == TopicFigures(11, 22, 33)


@pytest.mark.rule("PL-955", "PL-956")
def test_a_topics_count_does_not_fall_when_a_partition_moves_away_and_ends_with_its_last() -> None:
    counts = AppendedByTopic()
    one, two, other = appended(3), appended(4), appended(9)
    led = {TopicIdPartition(T, 0): one, TopicIdPartition(T, 1): two, TopicIdPartition(U, 0): other}
    assert counts.update(led) == {T: 7, U: 9}
    two.records += 5  # appended after the last round, before the partition moved
    del led[TopicIdPartition(T, 1)]
    assert counts.update(led) == {T: 12, U: 9}
    assert counts.update(led) == {T: 12, U: 9}
    led[TopicIdPartition(T, 0)] = appended(1)  # led again, under another epoch
    assert counts.update(led) == {T: 13, U: 9}
    assert counts.update({}) == {}
    assert counts.update({TopicIdPartition(T, 0): appended(2)}) == {T: 2}
