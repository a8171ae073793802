"""The partitions that a producer skips, for how long, and the log line about those that stay unavailable."""

from __future__ import annotations

import pytest

from kip932.ids import TopicPartition
from sharegroups.producing.core.unavailable_partitions import LOG_AFTER_MS, UnavailablePartitions

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.rule("CL-80")
def test_a_partition_is_left_out_until_its_batch_is_taken_or_given_up() -> None:
    skipped = UnavailablePartitions()
    assert skipped.choose("t", 0, 2) == 0
    skipped.failed(ZERO, "away", 0)
    assert [skipped.choose("t", 0, 2), skipped.choose("other", 0, 2)] == [1, 0]
    skipped.failed(ONE, "away", 0)
    assert [skipped.choose("t", first, 2) for first in (0, 1)] == [0, 1], "all of them are unavailable"
    assert (skipped.cause(ZERO), skipped.cause(TopicPartition("t", 2))) == ("away", "")
    skipped.over(ZERO)
    assert [skipped.choose("t", first, 2) for first in (0, 1)] == [0, 0]
    skipped.over(ONE)
    assert not skipped


@pytest.mark.rule("CL-80")
def test_one_without_a_leader_stays_out_whatever_becomes_of_its_batches() -> None:
    skipped = UnavailablePartitions()
    skipped.follow(frozenset({("t", 0)}), 0)
    skipped.over(ZERO)
    assert skipped.choose("t", 0, 2) == 1
    skipped.follow(frozenset(), 1)
    assert skipped.choose("t", 0, 2) == 0


@pytest.mark.rule("CL-80")
def test_who_stays_unavailable_for_five_seconds_is_reported_once_with_the_latest_cause() -> None:
    skipped = UnavailablePartitions()
    assert LOG_AFTER_MS == 5_000
    skipped.failed(ZERO, "it was slow", 1_000)
    skipped.failed(ZERO, "KAFKA_STORAGE_ERROR: disk", 4_000)
    assert skipped.lines(5_999, {"t": 3}) == []
    (line,) = skipped.lines(6_000, {"t": 3})
    assert line.startswith("t-0 takes no records: KAFKA_STORAGE_ERROR: disk. ")
    assert "the 2 other partitions" in line
    assert skipped.lines(60_000, {"t": 3}) == []
    skipped.over(ZERO)
    skipped.failed(ZERO, "again", 70_000)
    assert [skipped.lines(74_999, {"t": 3}), len(skipped.lines(75_000, {"t": 3}))] == [[], 1], "another failure"
