"""When and how often a consumer logs that a leader refuses a partition, and that it is over."""

from __future__ import annotations

from kip932.ids import TopicIdPartition
from sharegroups.consuming.core.refused_partitions import LOG_AFTER_MS, LOG_AGAIN_AFTER_MS, RefusedPartitions

ZERO, ONE = TopicIdPartition(b"t" * 16, 0), TopicIdPartition(b"t" * 16, 1)
WANTED = {ZERO: "orders", ONE: "orders"}


def test_what_passes_within_five_seconds_is_not_told() -> None:
    told = RefusedPartitions("g")
    assert LOG_AFTER_MS == 5_000
    assert told.answered({ZERO: "X: away."}, WANTED, 1_000) == []
    assert told.answered({ZERO: "X: away."}, WANTED, 5_999) == []
    assert told.answered({}, WANTED, 6_500) == []
    assert told.answered({ZERO: "X: away."}, WANTED, 7_000) == [], "it begins anew"


def test_what_lasts_is_told_with_the_latest_cause_and_again_after_five_minutes() -> None:
    told = RefusedPartitions("g")
    told.answered({ZERO: "X: away."}, WANTED, 1_000)
    (line,) = told.answered({ZERO: "Y: damaged."}, WANTED, 6_000)
    assert line.startswith("orders-0 has given group 'g' no records for 5 s: Y: damaged. ")
    assert "sharegroups groups describe --group g --verbose" in line
    assert told.answered({ZERO: "Z: other."}, WANTED, 6_000 + LOG_AGAIN_AFTER_MS - 1) == []
    (again,) = told.answered({ZERO: "Z: other."}, WANTED, 6_000 + LOG_AGAIN_AFTER_MS)
    assert "no records for 305 s: Z: other. It is asked" in again
    (unended,) = told.answered({ZERO: "Z: other"}, WANTED, 6_000 + 2 * LOG_AGAIN_AFTER_MS)
    assert "Z: other. It is asked" in unended


def test_the_end_of_what_was_told_is_told_once_and_each_partition_has_its_own_time() -> None:
    told = RefusedPartitions("g")
    told.answered({ZERO: "X: away."}, WANTED, 0)
    told.answered({ZERO: "X: away.", ONE: "X: away."}, WANTED, 4_000)
    assert len(told.answered({ZERO: "X: away.", ONE: "X: away."}, WANTED, 5_000)) == 1
    assert told.answered({}, WANTED, 8_000) == ["orders-0 serves group 'g' again, after 8 s."]
    assert told.answered({}, WANTED, 9_000) == []


def test_a_partition_that_went_to_another_member_is_forgotten_without_a_word() -> None:
    told = RefusedPartitions("g")
    told.answered({ZERO: "X: away."}, WANTED, 0)
    assert len(told.answered({ZERO: "X: away."}, WANTED, 5_000)) == 1
    assert told.answered({ZERO: "X: away."}, {ONE: "orders"}, 6_000) == []
    assert told.answered({}, WANTED, 7_000) == []
