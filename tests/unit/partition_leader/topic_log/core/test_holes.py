"""Offsets that are known to hold no record."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.holes import HOLES_MAX, Holes


@pytest.mark.rule("CM-105")
def test_holes_that_overlap_or_touch_count_once_and_only_within_what_is_asked() -> None:
    holes = Holes()
    for start, end in ((10, 20), (30, 40), (15, 30), (5, 10), (7, 7), (60, 50), (100, 101)):
        holes.add(start, end)
    assert holes.count(0, 1_000) == 36
    assert (holes.count(12, 14), holes.count(0, 5), holes.count(40, 100), holes.count(39, 101)) == (2, 0, 0, 2)
    assert holes.count(50, 10) == 0


@pytest.mark.rule("CM-105")
def test_no_more_than_a_bound_is_kept_and_the_largest_stay() -> None:
    holes = Holes()
    assert HOLES_MAX == 64
    for number in range(HOLES_MAX):
        holes.add(number * 10, number * 10 + 2)
    holes.add(10_000, 1_010_000)
    holes.add(9_000, 9_001)
    assert holes.count(0, 2_000_000) == 1_000_000 + (HOLES_MAX - 1) * 2


def test_many_holes_that_touch_are_one() -> None:
    """A log that loses one entry after another must not forget the first hole."""
    upwards, downwards = Holes(), Holes()
    for number in range(2 * HOLES_MAX):
        upwards.add(number, number + 1)
        downwards.add(1_000 - number, 1_001 - number)
    assert upwards.count(0, 2_000) == downwards.count(0, 2_000) == 2 * HOLES_MAX


def test_an_empty_range_takes_nobodys_place() -> None:
    holes = Holes()
    for number in range(HOLES_MAX):
        holes.add(number * 10, number * 10 + 1)
    for nothing in range(5, 10 * HOLES_MAX, 10):
        holes.add(nothing, nothing)
    assert holes.count(0, 10 * HOLES_MAX) == HOLES_MAX
    assert len([at for at in range(10 * HOLES_MAX) if holes.count(at, at + 1)]) == HOLES_MAX
