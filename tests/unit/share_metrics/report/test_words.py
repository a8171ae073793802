"""Times, durations, numbers and names, as a page writes them."""

from __future__ import annotations

import pytest

from share_metrics.report.words import bounded, counted, duration, instant, listed, text

LEAST = "≥\N{NO-BREAK SPACE}"


@pytest.mark.rule("PM-102")
@pytest.mark.parametrize(
    ("time", "shown"),
    [(0, "1970-01-01 00:00:00"), (1_795_337_999.9, "2026-11-22 08:59:59"), ("2026-11-22 08:00", "2026-11-22 08:00:00"),
     ("2026-11-22 08:00:07", "2026-11-22 08:00:07")],
)  # fmt: skip
def test_a_time_has_one_form(time: float | str, shown: str) -> None:
    assert instant(time) == shown


@pytest.mark.rule("PM-102")
@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (0.0004, "0 ms"), (0.23, "230 ms"), (0.9996, "1 s"), (1, "1 s"), (12.44, "12.4 s"), (59.94, "59.9 s"),
     (59.96, "1 min"), (60, "1 min"), (415.491, "6 min 55 s"), (3_599.6, "1 h"), (7_290, "2 h 1 min"),
     (86_400, "1 d"), (990_000, "11 d 11 h"), (86_400 * 1_234, "1,234 d")],
)  # fmt: skip
def test_a_duration_has_at_most_two_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.rule("PM-102")
def test_a_number_and_its_noun_agree() -> None:
    found = [counted(number, "share-partition") for number in (0, 1, 2, 1_200)]
    assert found == ["0 share-partitions", "1 share-partition", "2 share-partitions", "1,200 share-partitions"]
    assert [counted(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]


@pytest.mark.rule("PM-102")
@pytest.mark.parametrize(
    ("number", "least", "shown"),
    [(None, False, "unknown"), (None, True, "unknown"), (1_446, False, "1,446"), (1_446, True, f"{LEAST}1,446"),
     (0.25, False, "0.25"), (3.0, False, "3"), (12.6, False, "13")],
)  # fmt: skip
def test_a_lower_bound_has_its_sign_and_an_unknown_number_its_word(
    number: float | None, least: bool, shown: str
) -> None:
    assert bounded(number, least) == shown


@pytest.mark.rule("PM-102")
def test_names_beyond_the_first_few_are_counted() -> None:
    assert listed([], 3) == ""
    assert listed(["a", "b", "c"], 3) == "a, b, c"
    assert listed(["a", "b", "c", "d"], 3) == "a, b, c and 1 more"


@pytest.mark.rule("PM-102")
def test_text_is_no_markup_and_moves_no_cursor() -> None:
    assert text("<b>&\"'\x1b[2J\u202e") == "&lt;b&gt;&amp;&quot;&#x27;\\x1b[2J\\u202e"
