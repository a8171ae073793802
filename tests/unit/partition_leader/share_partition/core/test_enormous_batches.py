"""A batch in an older log, or a stored state, with 2^31 offsets: no array of that size is created."""

from __future__ import annotations

import tracemalloc

import pytest

from kip932.errors import UnknownServerError
from kip932.ids import ACK_ACCEPT, ACK_RELEASE, ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT, BATCH_RECORDS_MAX
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.share_partition import load_window

from .bench import Bench

ENORMOUS = 2**31 - 1


@pytest.mark.rule("CM-112")
@pytest.mark.parametrize("mode", [ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT])
def test_a_fetch_acquires_no_more_than_a_batch_may_hold(mode: int) -> None:
    """Before the fix, one fetch acquired 2^31-1 offsets, and acknowledging one of them created arrays of that size."""
    tracemalloc.start()
    try:
        bench = Bench(log=[(0, ENORMOUS - 1)])
        ((first, last, count),) = bench.fetch(mode=mode)
        assert (first, count) == (0, 1)
        assert last < BATCH_RECORDS_MAX
        bench.op += 1
        bench.do(
            ev.Acknowledge(
                bench.op,
                "M",
                (ev.AckBatch(0, 0, (ACK_ACCEPT,)), ev.AckBatch(1, last, (ACK_RELEASE,))),
                bench.settings,
            )
        )
        assert bench.writes
        again = bench.fetch("N", mode=mode)
        assert all(taken_last < 2 * BATCH_RECORDS_MAX for _, taken_last, _ in again)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.rule("CM-112")
@pytest.mark.parametrize("mode", [ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT])
def test_a_stored_state_of_that_size_is_loaded_in_parts(mode: int) -> None:
    """An older leader released such a batch as a whole and stored it. The log of the new leader ends at the most
    records that the batch's bytes could hold."""
    last = ENORMOUS // 8  # already thousands of parts; memory tracing takes time for each
    tracemalloc.start()
    try:
        bench = Bench(batches=(StateBatch(0, last, 0, 1),), log=[(0, 14_963)])
        assert bench.records() == [(0, last, 0, 1)]
        acquired = bench.fetch(mode=mode)
        assert acquired[0][0] == 0
        assert acquired[-1][1] <= 14_963
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(UnknownServerError, match="in flight"):
        load_window(0, [StateBatch(0, 2**61, 0, 1)])
    assert isinstance(bench.seen[-1], fx.Effect)
