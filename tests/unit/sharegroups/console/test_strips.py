"""The strip of a share-partition: runs, widths, words."""

from __future__ import annotations

import pytest

from kip932.ids import TopicPartition
from sharegroups.admin_values import Node, RecordExplanation, RecordsExplained
from sharegroups.console.strips import WIDTH, kind_of, strip_of


def explained(*records: RecordExplanation) -> RecordsExplained:
    return RecordsExplained(
        "g", TopicPartition("t", 0), Node(1, "n", 1), True, 0, 9, 0, 2_000, 9, 2_000, 5, 1, records
    )  # fmt: skip


def held(first: int, last: int, client: str = "w-7", left_ms: int | None = 5_000) -> RecordExplanation:
    return RecordExplanation(
        first, last, "acquired", "held", "Held", member_id="m", client_id=client, lock_remaining_ms=left_ms
    )


@pytest.mark.rule("CT-168")
def test_one_record_among_many_is_seen() -> None:
    strip = strip_of(explained(held(0, 0), RecordExplanation(1, 999, "available", "none", "Available")))
    assert [run.kind for run in strip.runs] == ["held", "available"]
    assert strip.runs[0].width >= 4
    assert strip.runs[1].x == strip.runs[0].width
    assert sum(run.width for run in strip.runs) == pytest.approx(WIDTH, abs=0.1)
    assert strip.words == "999 can be delivered, 1 held by members"
    assert strip.holders == (("w-7", 1, 5_000),)


@pytest.mark.rule("CT-168")
def test_holders_are_summed_with_their_longest_lock() -> None:
    strip = strip_of(explained(held(0, 1, left_ms=1_000), held(2, 2, left_ms=9_000), held(3, 3, "a", None)))
    assert strip.holders == (("a", 1, None), ("w-7", 3, 9_000))


@pytest.mark.rule("CT-168")
@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (RecordExplanation(0, 0, "available", "delayed", ""), "delayed"),
        (RecordExplanation(0, 0, "available", "held", "", delay_remaining_ms=5), "delayed"),
        (RecordExplanation(0, 0, "pending", "write_pending", ""), "written"),
        (RecordExplanation(0, 0, "acknowledged", "finished", ""), "finished"),
        (RecordExplanation(0, 0, "archived", "rejected", ""), "archived"),
        (RecordExplanation(0, 0, "a later state", "none", ""), "unknown"),
    ],
)
def test_kinds(record: RecordExplanation, kind: str) -> None:
    assert kind_of(record) == kind


def test_nothing_is_an_empty_strip() -> None:
    assert strip_of(explained()) == ((), "", ())


def test_a_thousand_runs_stay_within_the_picture() -> None:
    strip = strip_of(explained(*(held(number, number) for number in range(1_000))))
    assert strip.runs[-1].x + strip.runs[-1].width == pytest.approx(WIDTH, abs=0.1)
