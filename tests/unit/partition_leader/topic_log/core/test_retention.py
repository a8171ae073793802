"""Which batches retention cuts off."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.retention import Retention, cut

from .batches import stored


@pytest.mark.rule("CM-45")
def test_retention_stops_at_the_first_batch_that_must_stay() -> None:
    batches = [stored(i * 2, 2, 10, at_ms=i) for i in range(5)]
    assert cut(0, batches, Retention(3)).log_start == 6
    assert cut(0, batches, Retention(None, 25)).log_start == 4
    by_both = cut(0, batches, Retention(1, 25))
    assert (by_both.log_start, by_both.exhausted) == (4, False)
    assert cut(0, batches, Retention(99)).exhausted
