"""Texts of figures: an unknown one is never a number."""

from __future__ import annotations

import pytest

from sharegroups.insight.figures import Count, Rate, age, duration, total


@pytest.mark.rule("CT-154")
@pytest.mark.parametrize(
    ("count", "text"),
    [
        (Count(None), "?"),
        (Count(None, at_least=True), "?"),
        (Count(0), "0"),
        (Count(0, at_least=True), "?"),
        (Count(12_345), "12,345"),
        (Count(12, at_least=True), "≥12"),
    ],
)
def test_an_unknown_count_is_a_question_mark_and_a_partial_one_says_so(count: Count, text: str) -> None:
    assert count.text == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(None), "?"),
        (Rate(0.0), "0"),
        (Rate(0.04), "<0.1"),
        (Rate(0.5), "0.5"),
        (Rate(9.94), "9.9"),
        (Rate(9.96), "10"),
        (Rate(1_234.4), "1,234"),
        (Rate(3.0, at_least=True), "≥3.0"),
        (Rate(0.0, at_least=True), "?"),
    ],
)
def test_a_rate_has_a_digit_after_the_point_only_when_it_matters(rate: Rate, text: str) -> None:
    assert rate.text == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (999, "<1 s"),
        (1_000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (31 * 60_000, "31 min"),
        (7_500_000, "2 h 5 min"),
        (86_400_000 * 3, "3 d"),
    ],
)
def test_a_duration_has_at_most_two_units(ms: int, text: str) -> None:
    assert duration(ms) == text
    assert Count(ms).age_text == text


def test_an_age_keeps_its_second_unit() -> None:
    assert [age(None), age(400), age(60_000)] == [None, "0.4 s", "1 min 0 s"]


@pytest.mark.rule("CT-154")
def test_a_sum_with_something_unknown_is_partial_and_one_of_nothing_known_is_unknown() -> None:
    assert total([Count(1), Count(2)]) == Count(3)
    assert total([Count(1), Count(None)]) == Count(1, at_least=True)
    assert total([Count(1), Count(2, at_least=True)]) == Count(3, at_least=True)
    assert total([Count(None)]) == Count(None)
    assert total([]) == Count(None)
