"""The tasks and the table of `benchmarks.growth`. Nothing here is timed."""

from __future__ import annotations

import pytest

from benchmarks.drain import Shape
from benchmarks.growth import ALL, table


@pytest.mark.parametrize(
    ("series", "once", "more"),
    [
        ("partitions", Shape(1, 1), Shape(10, 1)),
        ("groups", Shape(1, 1), Shape(1, 10)),
        ("members", Shape(4, 1), Shape(4, 10)),
        ("in flight", Shape(1, 2), Shape(1, 20)),
        ("length", Shape(1, 1), Shape(1, 1)),
    ],
)
def test_one_thing_is_ten_times_as_much(series: str, once: Shape, more: Shape) -> None:
    little, much = (ALL[series].task(many, 3_000) for many in (False, True))
    assert (little.shape, much.shape) == (once, more)
    assert much.groups == (10 if series == "groups" else 1)
    assert much.acknowledged == much.produced * much.groups
    assert much.records == little.records * (10 if series == "length" else 1)


def _run(number: int, times: int, us: float) -> dict[str, object]:
    return {"series": "groups", "round": number, "times": times, "cpu_us_per_record": us, "flagged": times == 10}


def test_a_ratio_is_of_one_round_and_flat_up_to_a_fifth() -> None:
    runs = [_run(1, 1, 2.0), _run(1, 10, 2.4), _run(2, 1, 1.0), _run(2, 10, 3.0), _run(3, 1, 4.0), _run(3, 10, 4.0)]
    line = table(runs).splitlines()[1]
    assert line.split() == ["groups", "2.00", "3.00", "1.20", "yes", "(1.20,", "3.00,", "1.00;", "3)"]
    assert "NO" in table(runs[:4])


def test_a_series_without_a_whole_round_is_reported() -> None:
    assert "no round has both" in table([_run(1, 1, 2.0), _run(2, 10, 2.0)])
