"""Every number that the pipeline reports about a workload equals the one in the workload's ledger; `workload` runs
longer ones."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .workload import Row, played, table


def test_a_row_that_differs_is_marked() -> None:
    rows = [Row("g t", "page: lag", 5, 5), Row("g t", "gauge: lag", 5, None)]
    assert [line[:2] for line in table(rows).splitlines()] == ["  ", "≠ "]


@pytest.mark.rule("PM-34", "PM-41", "PM-42", "PM-44", "PM-45", "PM-48")
@pytest.mark.usefixtures("spark")
def test_page_gauges_and_replay_have_the_numbers_of_the_ledger() -> None:
    # Not in pytest's directory, whose path is too long for the sockets of a store.
    with TemporaryDirectory(prefix="sharegroups-ledger-") as name:
        rows, _ = played(Path(name), rounds=1, records=40)
    print(table(rows))
    assert len(rows) > 50
    assert [row for row in rows if not row.agrees] == []
