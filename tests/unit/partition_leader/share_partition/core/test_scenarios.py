"""Scenarios of the catalogue on one share-partition, with their own numbers: S-019, S-041, S-044, S-046, S-050, S-059,
S-061. tests/integration/scenarios plays them through the RPCs."""

from __future__ import annotations

import pytest

from kip932.errors import InvalidRecordStateError, InvalidRequestError
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import events as ev
from shard_runtime.config.group_config import GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
TWICE = GroupConfig(LOCK_MS, delivery_count_limit=2)


def _released_by_the_last_delivery(count: int, limit: int) -> list[tuple[int, int, int]]:
    """Return the ranges that one member acquires of a batch of `count` records, releasing each until no record is
    left."""
    bench = Bench(log=[(0, count - 1)], settings=GroupConfig(LOCK_MS, delivery_count_limit=limit))
    got: list[tuple[int, int, int]] = []
    while found := bench.fetch(max_records=count):
        (range_,) = found
        got.append(range_)
        assert bench.acked("M", (range_[0], range_[1], RELEASE)) is None
    assert bench.spso == count
    return got


@pytest.mark.scenario("S-019")
def test_near_the_limit_a_batch_comes_in_halves_and_then_record_by_record() -> None:
    got = _released_by_the_last_delivery(512, 10)
    assert got[:9] == [(0, last - 1, count) for count, last in enumerate([512] * 5 + [256, 128, 64, 32], 1)]
    assert got[9:41] == [(offset, offset, 10) for offset in range(32)]
    assert got[41] == (32, 63, 9)
    assert got[42:74] == [(offset, offset, 10) for offset in range(32, 64)]
    assert got[74] == (64, 127, 8)
    times = dict.fromkeys(range(512), 0)
    for first, last, count in got:
        for offset in range(first, last + 1):
            times[offset] += 1
            assert times[offset] == count
    assert times == dict.fromkeys(range(512), 10)
    assert [first for first, _, count in got if count == 10] == list(range(512)), "in ascending order"


@pytest.mark.scenario("S-041")
def test_stored_state_makes_the_window() -> None:
    bench = Bench(5, batches=(StateBatch(5, 10, 0, 2), StateBatch(11, 15, 4, 3)), log=[(0, 19)])
    loaded = bench.core.overview()
    assert (loaded.start_offset, loaded.end_offset, loaded.in_flight, loaded.batch_count) == (5, 15, 11, 2)
    assert bench.fetch() == [(5, 10, 3), (16, 19, 1)]
    assert bench.fetch() == []


@pytest.mark.scenario("S-044")
def test_the_start_offset_stops_at_offsets_that_were_never_fetched() -> None:
    stored = (StateBatch(11, 20, 0, 2), StateBatch(31, 40, 4, 1))
    bench = Bench(11, batches=stored, log=[(11, 20), (21, 30), (31, 40), (41, 50)])
    assert bench.fetch(max_records=10) == [(11, 20, 3)]
    assert bench.acked("M", (11, 20, ACCEPT)) is None
    assert (bench.spso, bench.core.overview().end_offset, bench.core.next_fetch_offset()) == (21, 40, 21)


@pytest.mark.scenario("S-046")
def test_what_lies_outside_the_window_cannot_be_acknowledged() -> None:
    bench = Bench(log=[(0, 4), (5, 10)])
    assert isinstance(bench.acked("M", (0, 15, REJECT)), InvalidRecordStateError), "the window is empty"
    assert bench.fetch(until=4, max_records=5) == [(0, 4, 1)]
    for wrong in ((20, 25, REJECT), (0, 10, ACCEPT)):
        assert isinstance(bench.acked("M", wrong), InvalidRequestError)
        assert bench.records() == [(0, 4, 1, 1)]
    assert bench.fetch() == [(5, 10, 1)]
    assert bench.acked("M", (0, 10, ACCEPT)) is None
    assert bench.spso == 11


@pytest.mark.scenario("S-050")
def test_a_lock_that_runs_out_at_the_limit_archives_in_the_middle_beside_a_renewed_one() -> None:
    bench = Bench(log=[(0, 9), (10, 19)], settings=TWICE)
    assert bench.fetch(batch_size=10) == [(0, 9, 1), (10, 19, 1)]
    for records in ([(0, 9, 1, 1), (10, 19, 0, 1)], [(0, 9, 1, 1), (10, 19, 4, 2)]):
        for _ in range(2):
            assert bench.acked("M", (0, 9, RENEW)) is None
            bench.pass_time(LOCK_MS // 2)
        bench.persisted()
        assert (bench.records(), bench.spso) == (records, 0)
        bench.fetch("N")


@pytest.mark.scenario("S-059")
@pytest.mark.parametrize(
    ("released", "log_start", "places", "left"),
    [
        pytest.param([(7, 8)], 11, (11, 11, 12), [(11, 11, 1, 1)], id="a"),
        pytest.param([(7, 8), (11, 11)], 11, (11, 11, 11), [(11, 11, 0, 1)], id="b"),
        pytest.param([], 14, (14, 14, 14), [], id="c"),
    ],
)
def test_the_log_start_at_or_beyond_the_end_of_the_window(
    released: list[tuple[int, int]],
    log_start: int,
    places: tuple[int, int, int],
    left: list[tuple[int, int, int, int]],
) -> None:
    bench = Bench(2, log=[(2, 6), (7, 11)])
    assert bench.fetch(batch_size=5) == [(2, 6, 1), (7, 11, 1)]
    for first, last in released:
        assert bench.acked("M", (first, last, RELEASE)) is None
    bench.do(ev.LogStartMoved(log_start))
    seen = bench.core.overview()
    assert (seen.start_offset, seen.end_offset, bench.core.next_fetch_offset()) == places
    assert bench.records() == left
    assert bench.fetch("N") == [(first, last, count + 1) for first, last, state, count, *_ in left if state == 0]


@pytest.mark.scenario("S-061")
@pytest.mark.parametrize("closes", [True, False])
def test_what_is_given_back_after_the_log_start_moved_into_a_batch(closes: bool) -> None:
    bench = Bench(5, log=[(5, 9), (10, 14)])
    assert bench.fetch(batch_size=5) == [(5, 9, 1), (10, 14, 1)]
    bench.do(ev.LogStartMoved(11))
    if closes:
        bench.release("M")
    else:
        bench.pass_time(LOCK_MS)
    bench.persisted()
    assert (bench.records(), bench.spso) == ([(11, 14, 0, 1)], 11)
    assert bench.fetch("N") == [(11, 14, 2)]
