"""Dead letters are counted by the properties that they share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sharegroups.cli.dlq.core.letter_tally import Row, SentCounts, Tally


@pytest.mark.rule("CT-123")
def test_the_largest_number_comes_first_and_what_has_no_room_is_counted_together() -> None:
    tally = Tally(rows_max=2)
    for key, at_ms, twice in (("b", 7, False), ("a", 5, False), ("a", 9, True), ("c", 4, False), ("d", 6, True)):
        tally.add((key,), at_ms, twice)
    tally.add(("b",), 3, is_sent=True)
    tally.add(("b",), 8, is_sent=False)
    assert tally.rows() == [
        (("b",), Row(3, 0, 3, 8, SentCounts(1, 1, 1))),
        (("a",), Row(2, 1, 5, 9, SentCounts(0, 0, 2))),
    ]
    assert tally.others == Row(2, 1, 4, 6, SentCounts(0, 0, 2))
    assert tally.letters == 7


@pytest.mark.rule("CT-177")
@pytest.mark.parametrize(
    ("known", "text"),
    [((), "0"), ((True, False), "1"), ((True, None), "1+"), ((False, None), "0+"), ((None, None), "-")],
)
def test_a_number_that_may_be_larger_is_marked(known: Sequence[bool | None], text: str) -> None:
    counts = SentCounts()
    for is_sent in known:
        counts.add(is_sent)
    assert counts.text == text


def test_rows_of_one_size_come_by_their_key() -> None:
    tally = Tally()
    for key in ("b", "c", "a"):
        tally.add((key,), 0)
    assert [key for key, _ in tally.rows()] == [("a",), ("b",), ("c",)]
