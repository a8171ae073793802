"""One line per group, computed from the lines of its share-partitions."""

from __future__ import annotations

from math import inf

import pytest

from share_metrics.report.groups import drain_s, group_lines
from share_metrics.report.model import Pace, PartitionLine


def line(
    group: str, lag: int | None, pace: Pace | None = None, *, least: bool = False, gone: bool = False
) -> PartitionLine:
    counts = (0, None, None, None, None, None, None, None, 0, 0)
    return PartitionLine(f"{group} · t-0", 0, lag, *counts, lag_least=least, gone=gone, group_id=group, pace=pace)


def test_a_group_sums_the_lag_and_the_rates_of_its_share_partitions() -> None:
    lines = [line("g", 30, Pace(60, 120, 60.0)), line("g", 10, Pace(0, 30, 30.0))]
    (found,) = group_lines(lines, [{"group_id": "g", "state": "Stable", "members": 2}])
    assert found == ("g", "Stable", 2, 2, 40, False, 1.0, 3.0, 20.0)


def test_an_unknown_lag_is_never_0_and_of_some_it_is_a_lower_bound() -> None:
    lines = [line("dark", None), line("half", None), line("half", 3), line("least", 4, least=True), line("done", 0)]
    found = {one.group_id: (one.lag, one.lag_least, one.drain_s) for one in group_lines(lines, [])}
    assert found == {
        "dark": (None, True, None),
        "half": (3, True, None),
        "least": (4, True, None),
        "done": (0, False, 0.0),
    }


def test_groups_with_an_unknown_lag_come_first_then_the_largest() -> None:
    lines = [line("b", 1), line("a", 1), line("c", 9), line("dark", None)]
    assert [one.group_id for one in group_lines(lines, [])] == ["dark", "c", "a", "b"]


def test_a_group_without_share_partitions_is_there_while_it_lives() -> None:
    standing = [
        {"group_id": "new", "state": "Stable", "members": 1},
        {"group_id": "old", "state": "Dead", "members": 0},
    ]
    (found,) = group_lines([line("old", None, gone=True)], standing)
    assert found == ("new", "Stable", 1, 0, 0, False, None, None, 0.0)


@pytest.mark.parametrize(
    ("lag", "arrived", "finished", "members", "expected"),
    [(0, None, None, None, 0.0), (100, 5.0, 15.0, None, 10.0), (100, 5.0, 15.0, 1, 10.0), (100, 5.0, 5.0, 1, inf),
     (100, 5.0, 0.0, 1, inf), (100, None, 1.0, 1, None), (None, 1.0, 9.0, 1, None), (100, 5.0, 15.0, 0, inf),
     (0, 5.0, 15.0, 0, 0.0), (None, 5.0, 15.0, 0, None)],
)  # fmt: skip
def test_the_time_to_drain(
    lag: int | None, arrived: float | None, finished: float | None, members: int | None, expected: float | None
) -> None:
    """A group without members drains nothing, however much was finished before they left."""
    assert drain_s(lag, arrived, finished, members) == expected
