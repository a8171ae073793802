"""Summaries with the state batches of some offsets, for a leader that has not loaded a share-partition."""

from __future__ import annotations

import pytest

from kip932.state_batches import StateBatch
from kip932.state_values import ReadSummary, StateSpan, StateSummary
from tests.support.share_state import KEY, Driver, initialize, write


@pytest.mark.rule("PL-825")
def test_a_summary_has_the_batches_that_are_asked_for_and_no_others() -> None:
    driver = Driver()
    driver.run(initialize(0, 0))
    driver.run(write((2, 5, 2, 1), (6, 9, 4, 3), (12, 12, 0, 1), start=0))
    before, fence = list(driver.log), driver.state().fence

    def batches(first: int, last: int) -> tuple[tuple[int, ...], ...]:
        summary = driver.run(ReadSummary(KEY, StateSpan(first, last)))
        assert isinstance(summary, StateSummary)
        return tuple(map(tuple, summary.batches))

    assert batches(4, 7) == (StateBatch(4, 5, 2, 1), StateBatch(6, 7, 4, 3))
    assert batches(10, 11) == ()
    assert batches(0, 2**62) == (StateBatch(2, 5, 2, 1), StateBatch(6, 9, 4, 3), StateBatch(12, 12, 0, 1))
    absent = driver.run(ReadSummary(KEY._replace(group_id="other"), StateSpan(0, 9)))
    assert absent == StateSummary()
    assert (driver.log, driver.state().fence) == (before, fence)
