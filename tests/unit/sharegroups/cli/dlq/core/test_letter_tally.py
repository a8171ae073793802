"""Dead letters are counted by the properties that they share."""

from __future__ import annotations

import pytest

from sharegroups.cli.dlq.core.letter_tally import Row, Tally


@pytest.mark.rule("CT-123")
def test_the_largest_number_comes_first_and_what_has_no_room_is_counted_together() -> None:
    tally = Tally(rows_max=2)
    for key, at_ms, twice in (("b", 7, False), ("a", 5, False), ("a", 9, True), ("c", 4, False), ("d", 6, True)):
        tally.add((key,), at_ms, twice)
    tally.add(("b",), 3)
    tally.add(("b",), 8)
    assert tally.rows() == [(("b",), Row(3, 0, 3, 8)), (("a",), Row(2, 1, 5, 9))]
    assert tally.others == Row(2, 1, 4, 6)
    assert tally.letters == 7


def test_rows_of_one_size_come_by_their_key() -> None:
    tally = Tally()
    for key in ("b", "c", "a"):
        tally.add((key,), 0)
    assert [key for key, _ in tally.rows()] == [("a",), ("b",), ("c",)]
