"""The totals of rounds with one executor and with two."""

from __future__ import annotations

import pytest

from benchmarks.pipeline_executors import summary


def run(rows_per_s: float, foreign_share: float = 0.0) -> dict[str, float]:
    return {"rows_per_s": rows_per_s, "rows_per_cpu_s": 1.0, "driver_cpu_s": 1.0, "foreign_share": foreign_share}


def test_the_ratio_is_that_of_the_medians() -> None:
    found = summary({1: [run(10), run(30), run(20)], 2: [run(99), run(30), run(36)]})
    assert found["ratio"] == pytest.approx(36 / 20)


@pytest.mark.parametrize(("share", "flagged"), [(0.1, False), (0.11, True)])
def test_a_turn_beside_others_flags_all(share: float, flagged: bool) -> None:
    assert summary({1: [run(10)], 2: [run(18, share)]})["flagged"] is flagged
