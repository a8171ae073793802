"""Unit tests of the suggestion for a name that a user may have meant."""

import pytest

from kip932.nearest_name import did_you_mean, nearest_name

KNOWN = ("orders", "payments", "retention.ms")


@pytest.mark.parametrize(
    ("name", "found"),
    [("ordres", "orders"), ("retention.msx", "retention.ms"), ("zzz", None), ("", None), ("orders" * 1_000, None)],
)
def test_the_most_similar_name_is_found_in_bounded_time(name: str, found: str | None) -> None:
    assert nearest_name(name, KNOWN) == found
    assert did_you_mean(name, iter(KNOWN)) == ("" if found is None else f" Did you mean {found!r}?")


def test_how_similar_a_name_must_be_is_the_callers_choice() -> None:
    assert nearest_name("order.id", KNOWN, 0.5) == "orders"
    assert nearest_name("order.id", KNOWN, 0.9) is None
