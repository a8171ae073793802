"""The strip of a share-partition."""

from __future__ import annotations

import pytest

from kip932.ids import TopicPartition
from sharegroups.admin_values import Node, RecordExplanation, RecordsExplained
from sharegroups.insight.strips import holders, legend, strip


def explained(*records: RecordExplanation, start: int | None = 0, log_start: int = 0) -> RecordsExplained:
    """Return a leader's answer about these records."""
    return RecordsExplained(
        "workers", TopicPartition("orders", 0), Node(1, "h", 9), True, start, 9, log_start, 99, 0, 200, 5, 1, records
    )


def record(first: int, last: int, state: str, obstacle: str = "none", **more: object) -> RecordExplanation:
    """Return an explanation of some neighbours."""
    return RecordExplanation(first, last, state, obstacle, "", **more)  # type: ignore[arg-type] # fields by name


@pytest.mark.rule("CT-158")
def test_each_record_has_a_character() -> None:
    answer = explained(
        record(0, 1, "acknowledged"),
        record(2, 3, "acquired", "held"),
        record(4, 4, "pending", "write_pending"),
        record(5, 5, "available", "delayed"),
        record(6, 7, "available", "not_fetched"),
        record(8, 8, "archived", "delivery_limit"),
        record(9, 9, "available", "uncommitted"),
        record(10, 99, "beyond_end"),
    )
    assert strip(answer, 40) == ("..##wzooxz", 1)
    assert legend() == "# locked  w being written  z waits  o available  x archived  . finished"


@pytest.mark.rule("CT-158")
def test_a_strip_that_is_too_long_shows_the_worst_of_its_neighbours() -> None:
    answer = explained(record(0, 99, "finished"), record(100, 100, "acquired", "held"), record(101, 999, "available"))
    assert strip(answer, 10) == (".#oooooooo", 100)
    assert strip(answer, 1) == ("#", 1_000)
    assert strip(answer, 0) == ("", 1)


def test_what_is_before_the_start_offset_is_left_out() -> None:
    records = (record(0, 9, "finished"), record(10, 11, "available"))
    assert strip(explained(*records, start=8), 40) == ("..oo", 1)
    assert strip(explained(*records, start=None, log_start=10), 40) == ("oo", 1)
    assert strip(explained(record(100, 100, "beyond_end"), start=100), 40) == ("", 1)


@pytest.mark.rule("CT-158")
def test_holders_are_named_with_the_time_that_is_left() -> None:
    answer = explained(
        record(2, 3, "acquired", "held", member_id="w-7\x1b", client_id="shop", lock_remaining_ms=21_500),
        record(4, 4, "acquired", "held", member_id="w-8", lock_remaining_ms=-5),
        record(5, 5, "acquired", "held", member_id="w-9"),
        record(6, 6, "available"),
    )
    assert list(holders(answer)) == [
        "2-3 held by w-7\\x1b (shop), 21 s left", "4 held by w-8, 0 s left", "5 held by w-9",
    ]  # fmt: skip
