"""The partitions that a producer skips, for how long, and the log line about those that stay unavailable."""

from __future__ import annotations

import pytest

from kip932.ids import TopicPartition
from sharegroups.producing.core.unavailable_partitions import LOG_AFTER_MS, UnavailablePartitions

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.rule("CL-80")
def test_a_partition_is_left_out_until_its_batch_is_taken_or_given_up() -> None:
    ill = UnavailablePartitions()
    assert ill.choose("t", 0, 2) == 0
    ill.failed(ZERO, "away", 0)
    assert [ill.choose("t", 0, 2), ill.choose("other", 0, 2)] == [1, 0]
    ill.failed(ONE, "away", 0)
    assert [ill.choose("t", first, 2) for first in (0, 1)] == [0, 1], "all of them are ill"
    assert (ill.cause(ZERO), ill.cause(TopicPartition("t", 2))) == ("away", "")
    ill.over(ZERO)
    assert [ill.choose("t", first, 2) for first in (0, 1)] == [0, 0]
    ill.over(ONE)
    assert not ill


@pytest.mark.rule("CL-80")
def test_one_without_a_leader_stays_out_whatever_becomes_of_its_batches() -> None:
    ill = UnavailablePartitions()
    ill.follow(frozenset({("t", 0)}), 0)
    ill.over(ZERO)
    assert ill.choose("t", 0, 2) == 1
    ill.follow(frozenset(), 1)
    assert ill.choose("t", 0, 2) == 0


@pytest.mark.rule("CL-80")
def test_who_stays_unavailable_for_five_seconds_is_reported_once_with_the_latest_cause() -> None:
    ill = UnavailablePartitions()
    assert LOG_AFTER_MS == 5_000
    ill.failed(ZERO, "it was slow", 1_000)
    ill.failed(ZERO, "KAFKA_STORAGE_ERROR: disk", 4_000)
    assert ill.lines(5_999, {"t": 3}) == []
    (line,) = ill.lines(6_000, {"t": 3})
    assert line.startswith("t-0 takes no records: KAFKA_STORAGE_ERROR: disk. ")
    assert "the 2 other partitions" in line
    assert ill.lines(60_000, {"t": 3}) == []
    ill.over(ZERO)
    ill.failed(ZERO, "again", 70_000)
    assert [ill.lines(74_999, {"t": 3}), len(ill.lines(75_000, {"t": 3}))] == [[], 1], "another illness"
