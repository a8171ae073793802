"""When and how often a consumer logs that a leader refuses a partition, and that it no longer does."""

from __future__ import annotations

from kip932.ids import TopicIdPartition
from sharegroups.consuming.core.refused_partitions import LOG_AFTER_MS, LOG_AGAIN_AFTER_MS, RefusedPartitions

ZERO, ONE = TopicIdPartition(b"t" * 16, 0), TopicIdPartition(b"t" * 16, 1)
WANTED = {ZERO: "orders", ONE: "orders"}


def test_what_passes_within_five_seconds_is_not_reported() -> None:
    reported = RefusedPartitions("g")
    assert LOG_AFTER_MS == 5_000
    assert reported.answered({ZERO: "X: away."}, WANTED, 1_000) == []
    assert reported.answered({ZERO: "X: away."}, WANTED, 5_999) == []
    assert reported.answered({}, WANTED, 6_500) == []
    assert reported.answered({ZERO: "X: away."}, WANTED, 7_000) == [], "it begins again"


def test_what_lasts_is_reported_with_the_latest_cause_and_again_after_five_minutes() -> None:
    reported = RefusedPartitions("g")
    reported.answered({ZERO: "X: away."}, WANTED, 1_000)
    (line,) = reported.answered({ZERO: "Y: damaged."}, WANTED, 6_000)
    assert line.startswith("orders-0 has given group 'g' no records for 5 s: Y: damaged. ")
    assert "sharegroups groups describe --group g --verbose" in line
    assert reported.answered({ZERO: "Z: other."}, WANTED, 6_000 + LOG_AGAIN_AFTER_MS - 1) == []
    (again,) = reported.answered({ZERO: "Z: other."}, WANTED, 6_000 + LOG_AGAIN_AFTER_MS)
    assert "no records for 305 s: Z: other. The consumer keeps" in again
    (unended,) = reported.answered({ZERO: "Z: other"}, WANTED, 6_000 + 2 * LOG_AGAIN_AFTER_MS)
    assert "Z: other. The consumer keeps" in unended


def test_the_end_of_what_was_reported_is_reported_once_and_each_partition_has_its_own_time() -> None:
    reported = RefusedPartitions("g")
    reported.answered({ZERO: "X: away."}, WANTED, 0)
    reported.answered({ZERO: "X: away.", ONE: "X: away."}, WANTED, 4_000)
    assert len(reported.answered({ZERO: "X: away.", ONE: "X: away."}, WANTED, 5_000)) == 1
    assert reported.answered({}, WANTED, 8_000) == ["orders-0 serves group 'g' again, after 8 s."]
    assert reported.answered({}, WANTED, 9_000) == []


def test_a_partition_that_went_to_another_member_is_forgotten_without_a_word() -> None:
    reported = RefusedPartitions("g")
    reported.answered({ZERO: "X: away."}, WANTED, 0)
    assert len(reported.answered({ZERO: "X: away."}, WANTED, 5_000)) == 1
    assert reported.answered({ZERO: "X: away."}, {ONE: "orders"}, 6_000) == []
    assert reported.answered({}, WANTED, 7_000) == []
