"""Tables of a page, on wide and narrow screens."""

from __future__ import annotations

import pytest

from share_metrics.report.tables import EMPTY, Columns, cell, fold, labels, of_more, percent, table

COLUMNS = Columns("groups", ("group", "lag", "drained in"))


@pytest.mark.rule("PM-37")
def test_a_table_scrolls_by_itself_and_one_without_rows_says_so() -> None:
    made = table(COLUMNS, [("<g>", 1_200, None)])
    assert made == (
        '<div class="wide"><table class="groups"><thead><tr><th>group</th><th>lag</th><th>drained in</th></tr></thead>'
        "<tbody><tr><td>&lt;g&gt;</td><td>1,200</td><td>–</td></tr></tbody></table></div>"
    )
    assert table(COLUMNS, []) == EMPTY


@pytest.mark.rule("PM-103")
def test_each_value_but_the_first_has_its_name_on_a_narrow_screen() -> None:
    assert labels(COLUMNS) == (
        '.groups td:nth-child(2)::before{content:"lag"}.groups td:nth-child(3)::before{content:"drained in"}'
    )


@pytest.mark.rule("PM-102")
def test_values_are_written_in_one_way() -> None:
    assert [cell(value) for value in (None, 0, 1_234_567, "a\x00")] == ["–", "0", "1,234,567", "a\\x00"]
    assert [percent(None), percent(0.075), percent(12.0)] == [
        None,
        "7.5\N{NO-BREAK SPACE}%",
        "1200.0\N{NO-BREAK SPACE}%",
    ]


def test_what_is_left_out_is_counted_and_what_is_folded_is_named() -> None:
    assert of_more([1, 2], 2) == ""
    assert of_more([1, 2], 2_000) == '<p class="dim">2 of 2,000 are shown.</p>'
    assert fold("<more>", "<p>") == "<details><summary>&lt;more&gt;</summary><p></details>"
