"""The table of `workload`, which holds every number that the pipeline tells against a ledger of its own."""

from __future__ import annotations

from .workload import Row, table


def test_a_row_that_differs_is_marked() -> None:
    rows = [Row("g t", "page: lag", 5, 5), Row("g t", "gauge: lag", 5, None)]
    assert [line[:2] for line in table(rows).splitlines()] == ["  ", "≠ "]
