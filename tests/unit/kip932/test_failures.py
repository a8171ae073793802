"""Reasons of failures at their real limits, and how texts are cut."""

from __future__ import annotations

import pytest

from kip932.failures import (
    FAILURES_MAX,
    REASON_BYTES_MAX,
    REASONS_BYTES_MAX,
    SHORT_BYTES_MAX,
    Failure,
    clip_failures,
    cut,
    merge_failures,
)


@pytest.mark.rule("PL-942")
def test_the_limits_are_those_of_the_rule() -> None:
    assert (REASON_BYTES_MAX, REASONS_BYTES_MAX, SHORT_BYTES_MAX, FAILURES_MAX) == (1_024, 256 * 1_024, 200, 5_000)


@pytest.mark.rule("PL-942")
@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("", 3, ""),
        ("abc", 3, "abc"),
        ("abcd", 3, "…"),
        ("abcdef", 5, "ab…"),
        ("€€€", 9, "€€€"),
        ("€€€€", 9, "€€…"),
        ("a€€", 6, "a…"),
        ("😀😀", 7, "😀…"),
        ("😀😀", 6, "…"),
    ],
)
def test_a_text_is_cut_at_the_end_of_a_character(text: str, limit: int, expected: str) -> None:
    assert cut(text, limit) == expected
    assert len(expected.encode()) <= limit


@pytest.mark.rule("PL-942")
def test_up_to_the_limit_every_byte_is_kept() -> None:
    full = [Failure(2 * at, 2 * at, 1, f"{at:0{REASON_BYTES_MAX}}") for at in range(256)]
    assert merge_failures((), full) == tuple(full)
    smaller = [Failure(2 * at, 2 * at, 1, f"{at:051}") for at in range(FAILURES_MAX)]
    assert merge_failures((), reversed(smaller)) == tuple(smaller)


@pytest.mark.rule("PL-942")
def test_more_are_cut_to_their_first_lines_and_whole_again_when_the_start_offset_has_moved() -> None:
    full = [Failure(2 * at, 2 * at, 1, f"{at:0256}\n" + "b" * 767) for at in range(257)]
    (first, *_, last) = found = merge_failures((), full)
    assert len(found) == 257
    assert first.reason == "0" * 197 + "…"
    assert len(last.reason.encode()) == SHORT_BYTES_MAX
    assert merge_failures(found, (), 100) == found[50:]
    later = Failure(600, 600, 1, "c" * 1_024)
    assert merge_failures(found, [later], 500)[-1] == later


@pytest.mark.rule("PL-942")
def test_if_that_is_not_enough_the_highest_offsets_have_none() -> None:
    full = [Failure(at, at, 1, f"{at:04}" + "b" * 1_000) for at in range(3_000)]
    found = merge_failures((), full)
    assert len(found) == REASONS_BYTES_MAX // SHORT_BYTES_MAX
    assert [one.first_offset for one in found] == list(range(len(found)))
    again = merge_failures(found, [Failure(5, 5, 2, "later")])
    assert again[5] == Failure(5, 5, 2, "later")
    many = [Failure(2 * at, 2 * at, 1, "x") for at in range(FAILURES_MAX + 1)]
    assert merge_failures((), many) == tuple(many[:-1])


@pytest.mark.rule("PL-942")
def test_a_reason_without_a_line_of_text_is_not_kept_when_all_are_cut() -> None:
    blank = Failure(0, 0, 1, " \n\n")
    full = [Failure(at, at, 1, f"\n{at:0800}") for at in range(1, 400)]
    assert merge_failures((), [blank]) == (blank,)
    found = merge_failures((), [blank, *full])
    assert found[0] == Failure(1, 199 + 200, 1, "0" * 197 + "…"), "equal ones are joined once they are cut"


@pytest.mark.rule("SC-117")
def test_a_later_reason_of_the_same_count_wins_only_by_its_text() -> None:
    one, two = Failure(3, 9, 2, "a"), Failure(5, 6, 2, "b")
    expected = (Failure(3, 4, 2, "a"), Failure(5, 6, 2, "b"), Failure(7, 9, 2, "a"))
    assert merge_failures(merge_failures((), [one]), [two]) == expected
    assert merge_failures(merge_failures((), [two]), [one]) == expected
    assert merge_failures(expected, [Failure(0, 20, 1, "z")])[1:4] == expected
    assert clip_failures(expected, 4, 5) == (Failure(4, 4, 2, "a"), Failure(5, 5, 2, "b"))
