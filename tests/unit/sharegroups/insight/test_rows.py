"""Rows: order, sums, rates, and what is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroups.insight.figures import Count
from sharegroups.insight.rows import Drained, groups_of, rows_of

from .samples import groups, page, progress


@pytest.mark.rule("CT-154")
def test_the_largest_lag_comes_first_then_unknown_ones_then_those_without_a_lag() -> None:
    found = rows_of(
        page(
            progress("a", lag=0),
            progress("b", lag=5, oldest_ms=1),
            progress("c", lag=None),
            progress("d", lag=7, oldest_ms=1),
            progress("e", lag=5, oldest_ms=9),
        ),
        groups(a=1, b=1, c=1, d=1, e=1, f=1),
    )
    assert [(row.group, row.lag.text) for row in found] == [
        ("d", "7"), ("e", "5"), ("b", "5"), ("c", "?"), ("f", "?"), ("a", "0"),
    ]  # fmt: skip


@pytest.mark.rule("CT-154")
def test_rates_and_the_time_to_drain_come_from_the_leaders_window() -> None:
    (row,) = rows_of(page(progress(lag=300, oldest_ms=1, recent_arrived=20, recent_finished=50)), groups(workers=2))
    assert (row.arriving.text, row.finishing.text, row.drained.text) == ("2.0", "5.0", "1 min 40 s")
    assert (row.members.text, row.state, row.oldest_text) == ("2", "Stable", "<1 s")


@pytest.mark.rule("CT-154")
@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"lag": 0}, "-"),
        ({"lag": 5, "recent_arrived": 9, "recent_finished": 9}, "never at this rate"),
        ({"lag": 5, "recent_arrived": 9, "recent_finished": 8}, "never at this rate"),
        ({"lag": 5, "recent_ms": 0, "recent_arrived": 9, "recent_finished": 99}, "?"),
        ({"lag": None, "recent_finished": 9}, "?"),
        ({"lag": 1, "recent_ms": 1, "recent_finished": 9_000_000}, "<1 s"),
    ],
)
def test_the_time_to_drain_is_never_or_unknown(figures: dict[str, Any], text: str) -> None:
    (row,) = rows_of(page(progress(**figures)), groups(workers=1))
    assert row.drained.text == text


@pytest.mark.rule("CT-154")
def test_without_the_answer_of_a_leader_all_sums_are_partial_and_nothing_is_drained() -> None:
    one = progress(lag=5, oldest_ms=2_000, in_flight=1, recent_arrived=0, recent_finished=20)
    (row,) = rows_of(page(one, missing=("n:1",)), groups(workers=1))
    assert (row.lag.text, row.oldest_text, row.in_flight.text, row.delayed.text) == ("≥5", "≥2 s", "≥1", "?")
    assert (row.finishing.text, row.arriving.text, row.drained) == ("≥2.0", "?", Drained(None))
    (none,) = rows_of(page(progress(), missing=("n:1",)), groups(workers=1))
    assert (none.lag.text, none.oldest_text) == ("?", "?")


@pytest.mark.rule("CT-154")
def test_rows_that_leaders_left_out_make_sums_partial_and_are_not_said_to_be_unknown_groups() -> None:
    (row,) = rows_of(page(progress(lag=5), total=2), groups(workers=1, other=1))
    assert row.lag.text == "≥5"


@pytest.mark.rule("CT-154")
def test_a_group_that_no_coordinator_lists_has_no_member_only_if_the_list_is_complete() -> None:
    gone = page(progress("gone", lag=5, oldest_ms=60_000, fetching=0))
    assert [row.members.text for row in rows_of(gone, groups())] == ["0"]
    assert [row.members.text for row in rows_of(gone, groups(failed="no answer"))] == ["?"]
    assert [row.members.text for row in rows_of(gone, None)] == ["?"]
    assert [row.state for row in rows_of(gone, None)] == [None]


@pytest.mark.rule("CT-154")
def test_a_groups_row_sums_its_topics() -> None:
    found = groups_of(
        page(
            progress("a", "t", lag=1, oldest_ms=5),
            progress("a", "u", lag=2, oldest_ms=7),
            progress("b", "t", lag=9, oldest_ms=1),
            progress("c", "t", lag=4, oldest_ms=3),
            progress("c", "u", lag=None),
            progress("d", "t", lag=0),
        ),
        groups(a=1, b=0, c=2, d=1, e=None),
    )
    assert [(row.group, row.topics.text, row.lag.text, row.oldest_text, row.members.text) for row in found] == [
        ("b", "1", "9", "<1 s", "0"),
        ("c", "2", "≥4", "≥<1 s", "2"),
        ("a", "2", "3", "<1 s", "1"),
        ("e", "?", "?", "?", "?"),
        ("d", "1", "0", "-", "1"),
    ]


@pytest.mark.rule("CT-154")
def test_ten_thousand_groups_are_sorted_with_each_counted_once() -> None:
    many = [progress(f"g{number}", lag=number, oldest_ms=1) for number in range(10_000)]
    members: dict[str, Any] = {f"g{number}": 1 for number in range(10_000)}
    found = groups_of(page(*many), groups(**members))
    assert [row.lag for row in found[:2]] == [Count(9_999), Count(9_998)]
    assert len(found) == 10_000
