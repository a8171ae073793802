"""Columns of `top`: what fits, what is cut, and in what order rows come."""

from __future__ import annotations

import pytest

from sharegroups.insight import columns
from sharegroups.insight.columns import GAP, ORDERS, WHY, cell, chosen, detail, fitting
from sharegroups.insight.rows import Row, rows_of

from .samples import groups, page, progress

EVIL = 'e\x1b[2J[red]"\u200f'


def rows() -> list[Row]:
    """Return three rows that each order puts differently."""
    return rows_of(
        page(
            progress("a", lag=9, oldest_ms=1_000, recent_arrived=5, recent_finished=9),
            progress("b", lag=5, oldest_ms=9_000, recent_arrived=9, recent_finished=8, archived=2, dead_letters=1),
            progress("c", lag=None, recent_ms=0),
        ),
        groups(a=1, b=1, c=1),
    )


@pytest.mark.rule("CT-157")
@pytest.mark.parametrize("width", [80, 81, 100, 120, 200, 400])
def test_the_columns_fill_the_width_and_the_reason_is_always_there(width: int) -> None:
    found = fitting(width)
    assert sum(own + GAP for _, own in found) == width
    assert [column.name for column, _ in found[:4]] == ["GROUP", "TOPIC", "LAG", "OLDEST"]
    assert found[-1][0] is WHY


def test_a_wide_screen_has_every_column_and_a_narrow_one_the_worst_of_it() -> None:
    assert [column for column, _ in fitting(200)] == list(columns.ALL)
    assert len(fitting(80)) == 5


@pytest.mark.rule("CT-157")
def test_a_cell_is_cut_to_its_width_and_its_names_are_printable() -> None:
    (row,) = rows_of(page(progress(EVIL, "t" * 99)), groups())
    assert cell(columns.GROUP, 40, row) == 'e\\x1b[2J[red]"\\u200f'
    assert cell(columns.TOPIC, 5, row) == "tttt…"
    assert cell(columns.LAG, 5, row) == "    0"


@pytest.mark.rule("CT-157")
@pytest.mark.parametrize(
    ("key", "names"), [("l", "abc"), ("o", "bac"), ("a", "bac"), ("f", "abc"), ("t", "bac"), ("n", "abc")]
)
def test_each_key_chooses_an_order(key: str, names: str) -> None:
    assert "".join(row.group for row in chosen(reversed(rows()), ORDERS[key], "")) == names


@pytest.mark.rule("CT-157")
def test_a_filter_finds_words_in_group_topic_and_reason() -> None:
    assert [row.group for row in chosen(rows(), ORDERS["l"], " B ")] == ["b"]
    assert len(chosen(rows(), ORDERS["l"], "ORDERS")) == 3
    assert [row.group for row in chosen(rows(), ORDERS["l"], "unknown: a leader")] == ["c"]
    assert chosen(rows(), ORDERS["l"], "nothing like it") == []


def test_a_narrow_screen_has_the_rest_of_the_chosen_row_below() -> None:
    assert detail(rows()[1]) == (
        "b · orders: keeps up",
        "lag 5, oldest 9 s, arriving 0.9/s, finishing 0.8/s, to drain: never at this rate",
        "in flight 0, delayed 0, given up 2 (letters to write 1), members 1 (Stable)",
    )
