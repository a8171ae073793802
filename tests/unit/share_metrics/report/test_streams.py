"""The skew of streams."""

from __future__ import annotations

import pytest

from share_metrics.report.sums import skew_rows


def _stream(name: str, records: int) -> dict[str, object]:
    return {
        "stream": name,
        "records": records,
        "bytes": 10 * records,
        "keys": [("g", "t", number) for number in range(3)],
    }


@pytest.mark.rule("PM-62")
def test_streams_with_equal_records_are_even() -> None:
    found = skew_rows([_stream("b", 5), _stream("a", 5)])
    assert [(row["stream"], row["skew"], row["gini"]) for row in found] == [("a", 1, 0), ("b", 1, 0)]


@pytest.mark.rule("PM-62")
def test_the_largest_stream_is_first_and_skew_is_that_by_the_mean() -> None:
    """Gini by definition: the mean difference over all pairs, divided by twice the mean."""
    sizes = {"a": 1, "b": 7, "c": 4}
    found = skew_rows([_stream(name, size) for name, size in sizes.items()])
    pairs = [abs(one - other) for one in sizes.values() for other in sizes.values()]
    assert [(row["stream"], row["entries"], row["bytes"], row["keys"]) for row in found] == [
        ("b", 7, 70, 3), ("c", 4, 40, 3), ("a", 1, 10, 3)
    ]  # fmt: skip
    assert {row["skew"] for row in found} == {7 / 4}
    assert [row["gini"] for row in found] == [pytest.approx(sum(pairs) / len(pairs) / (2 * 4))] * 3


def test_streams_without_records_are_left_out() -> None:
    assert skew_rows([_stream("a", 0)]) == []
