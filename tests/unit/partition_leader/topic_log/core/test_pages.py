"""The index of pages follows the log start."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.pages import PageIndex

from .batches import stored


@pytest.mark.rule("CM-45")
def test_pages_follow_the_log_start() -> None:
    index = PageIndex()
    full = [stored(i, newest_ms=i) for i in range(1_000)]
    assert index.add(0, full) == 1_000
    assert index.add(1_000, [stored(1_000, newest_ms=5_000), stored(1_001, newest_ms=4_000)]) == 1_002
    assert (index.from_timestamp(999), index.from_timestamp(1_000), index.from_timestamp(5_001)) == (0, 1_000, None)
    largest = index.largest()
    assert largest is not None
    assert largest.max_batch == 1_000
    assert index.size == 10_020
    assert index.resume(0) == 1_000, "the short page is read again"
    assert index.resume(0) == 1_000, "a full page that begins at the log start is not read again"
    assert index.resume(1_500) == 1_500
    assert index.size == 0
