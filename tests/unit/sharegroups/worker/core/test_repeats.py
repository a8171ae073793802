"""Which failed jobs are logged, and which are counted."""

from __future__ import annotations

import logging

import pytest

from sharegroups.worker.core.repeats import CAUSES_MAX, EVERY_S, Repeats, shape_of


@pytest.mark.rule("CL-179")
def test_the_first_of_each_cause_is_logged_and_the_others_of_its_minute_are_counted() -> None:
    repeats = Repeats[str]()
    assert [repeats.admit("a", logging.WARNING, f"a{n}", 10.0 + n) for n in range(3)] == [True, False, False]
    assert repeats.admit("b", logging.WARNING, "b0", 30.0)
    assert repeats.due(10.0 + EVERY_S - 0.1) == []
    (held,) = repeats.due(10.0 + EVERY_S)
    assert (held.count, held.newest, held.since_s, held.various) == (2, "a2", 10.0, False)
    assert repeats.admit("a", logging.WARNING, "a3", 71.0), "a new minute begins with a line"
    assert repeats.due(30.0 + EVERY_S) == [], "nothing of b was held back"


@pytest.mark.rule("CL-179")
def test_at_the_end_every_count_is_due_at_once() -> None:
    repeats = Repeats[str]()
    for cause in ("a", "b", "a"):
        repeats.admit(cause, logging.ERROR, cause, 1.0)
    (held,) = repeats.due(1.5, at_end=True)
    assert (held.newest, held.count) == ("a", 1)
    assert repeats.due(1.5, at_end=True) == []


@pytest.mark.rule("CL-179")
def test_beyond_the_most_causes_all_share_one_for_each_level() -> None:
    repeats = Repeats[int]()
    levels = (logging.WARNING, logging.ERROR)
    logged = [repeats.admit(n, levels[n % 2], n, 0.0) for n in range(CAUSES_MAX + 1_000)]
    assert logged == [True] * (CAUSES_MAX + 2) + [False] * 998
    assert len(repeats._kept) == CAUSES_MAX + 2, "the memory of causes has a bound"
    held = repeats.due(EVERY_S)
    assert [(one.count, one.various) for one in held] == [(499, True), (499, True)]
    assert repeats.admit("new", logging.ERROR, 0, EVERY_S), "and causes have lines of their own again"


@pytest.mark.rule("CL-179")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: order 7731 has no address", "ValueError: order 9 has no address"),
        ("KeyError: 'ann'", "KeyError: 'bob the second'"),
        ("bad \"a\" in 'b', it isn't", "bad \"cd\" in 'ef', it isn't"),
        ("no row for 3f2a-77b1 in db-2.example", "no row for aa01-9c in db-17.example"),
        ("spaces  and\nlines 1", "spaces and lines 2"),
    ],
)
def test_messages_that_differ_in_numbers_and_quoted_text_have_one_shape(one: str, other: str) -> None:
    assert shape_of(one) == shape_of(other)


@pytest.mark.rule("CL-179")
def test_other_words_are_another_shape_and_a_shape_is_short() -> None:
    assert shape_of("ValueError: no address") != shape_of("ValueError: no name")
    assert shape_of("KeyError: 'a'") != shape_of("ValueError: 'a'")
    assert len(shape_of("word " * 1_000)) <= 120
