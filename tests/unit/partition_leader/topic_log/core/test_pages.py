"""The index of pages follows the log start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_leader.topic_log.core import pages
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
    assert (index.size(0), index.size(1), index.size(1_000), index.size(1_002)) == (10_020, 20, 20, 0)
    assert index.resume(0) == 1_002, "no page is read again that begins at the log start or above it"
    assert index.resume(1_500) == 1_500
    assert index.size(1_500) == 0


@pytest.mark.rule("CM-45")
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=40), st.data())
def test_batches_that_come_one_after_the_other_join_the_last_page_until_it_is_full(
    batches: list[tuple[int, int]], data: st.DataObject
) -> None:
    logged = [stored(i, size=size, newest_ms=newest_ms) for i, (size, newest_ms) in enumerate(batches)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_BATCHES", 5)
        patch.setattr(pages, "PAGE_BYTES", 50)
        index, at = PageIndex(), 0
        while at < len(logged):
            room, room_bytes = index.room()
            assert (1 <= room <= 5, 1 <= room_bytes <= 50) == (True, True)
            more = data.draw(st.integers(1, room))
            assert index.add(at, logged[at : at + more]) == min(at + more, len(logged))
            at = index.resume(0)
        assert index.size(0) == sum(batch.size for batch in logged)
        assert [page.end for page in index.pages[:-1]] == [page.start for page in index.pages[1:]]
        assert all(page.full for page in index.pages[:-1])
        for newest_ms in range(10):
            start = index.from_timestamp(newest_ms)
            first = next((batch.base_offset for batch in logged if batch.max_timestamp_ms >= newest_ms), None)
            assert (start is None) == (first is None)
            if start is not None and first is not None:
                assert next(page.end for page in index.pages if page.start == start) > first >= start
        largest = index.largest()
        assert (largest is None) == (not logged)
        if largest is not None:
            assert largest.max_batch == max(logged, key=lambda batch: batch.max_timestamp_ms).base_offset
