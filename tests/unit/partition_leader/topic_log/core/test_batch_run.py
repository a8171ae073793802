"""Runs of batches in memory: read like a plain list, and bounded."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.core.batch_run import BATCH_BYTES, BatchRun

from .batches import stored


@pytest.mark.rule("PL-006", "CM-46")
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50), st.integers(0, 3)), min_size=1, max_size=30),
    limit=st.integers(0, 8_000),
    max_bytes=st.integers(0, 300),
    max_offsets=st.integers(0, 10),
    trim=st.integers(0, 40),
)
def test_a_run_reads_like_a_plain_list(
    sizes: list[tuple[int, int, int]], limit: int, max_bytes: int, max_offsets: int, trim: int
) -> None:
    run, everything, end = BatchRun(0, limit), [], 0
    for records, size, hole in sizes:
        one = stored(end + hole, records, size)
        everything.append(one)
        end = one.end_offset
        run.append([one], end)
    run.trim(trim)
    held = list(run.batches)
    assert held == everything[len(everything) - len(held) :]
    assert run.size == sum(one.size for one in held)
    assert run.memory == run.size + len(held) * BATCH_BYTES <= limit
    assert run.end == end
    for offset in range(run.start, end + 1):
        expected = [one for one in everything if one.last_offset >= offset]
        assert expected == [one for one in held if one.last_offset >= offset], "a batch at or above start is missing"
        got = list(run.read(offset, max_bytes, max_offsets))
        assert got == expected[: len(got)]
        assert bool(got) == bool(expected)
        assert run.bytes_from(offset) == sum(one.size for one in expected)
        total = sum(one.size for one in got)
        assert len(got) == 1 or total <= max_bytes or not got
        covered = (
            bool(max_offsets)
            and bool(got)
            and (got[-1].last_offset >= max(offset, got[0].base_offset) + max_offsets - 1)
        )
        if len(got) < len(expected):
            assert covered or total + expected[len(got)].size > max_bytes, "a batch that fits was left out"


@pytest.mark.rule("CM-46")
@pytest.mark.parametrize("size", [2, 1_000])
def test_a_cache_takes_no_more_memory_than_its_limit_whatever_its_batches_hold(size: int) -> None:
    limit, now_ms = 500_000, 1_700_000_000_000
    run = BatchRun(0, limit)
    tracemalloc.start()
    try:
        for number in range(5_000):
            times = (now_ms + number, now_ms + number)
            data = bytes(bytearray(size))
            run.append([LogBatch(number, number, size, data, *times, 10**15 + number, 1, number)], number + 1)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert limit / 2 < run.memory <= limit
    assert taken <= limit * 1.3, "the lists keep places for what went, until they are compacted"
