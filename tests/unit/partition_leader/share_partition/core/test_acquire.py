"""The records that one fetch acquires: within the free locks, around holes, in parts of batches, after failures."""

from __future__ import annotations

import pytest

from kip932.errors import GroupIdNotFoundError
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from shard_runtime.config.group_config import GroupConfig
from tests.support.batch_headers import Header
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, one, written

ACCEPT, RELEASE, RENEW = 1, 2, 4
THREE = [(0, 9), (10, 19), (20, 29)]


def limited(max_record_locks: int, log: list[tuple[int, int]]) -> Bench:
    return Bench(log=log, settings=GroupConfig(LOCK_MS, max_record_locks=max_record_locks))


@pytest.mark.rule("PL-132", "PL-221")
def test_a_fetch_takes_the_locks_that_are_left_rounded_up_to_a_log_batch() -> None:
    bench = limited(15, THREE)
    assert bench.fetch() == [(0, 19, 1)]
    assert not bench.core.can_acquire(bench.settings)
    assert bench.fetch() == []


@pytest.mark.rule("PL-134", "PL-222")
def test_a_lowered_limit_of_locks_stops_new_offsets_only() -> None:
    bench = limited(100, THREE)
    bench.fetch(max_records=20)
    bench.acked("M", (5, 5, RELEASE))
    bench.set(max_record_locks=1)
    assert bench.fetch("N") == [(5, 5, 2)]
    assert bench.fetch("N") == []
    bench.set(max_record_locks=21)
    assert bench.fetch("N") == [(20, 29, 1)]


@pytest.mark.rule("PL-223", "PL-230", "PL-124", "PL-231", "PL-005")
def test_a_batch_that_begins_before_the_start_offset_is_taken_from_there_and_a_later_one_moves_it() -> None:
    assert Bench(5, log=[(0, 9)]).fetch() == [(5, 9, 1)]
    bench = Bench(5, log=[(8, 9)])
    assert bench.fetch() == [(8, 9, 1)]
    assert (bench.spso, bench.core.overview().end_offset, bench.core.speo) == (8, 9, 10), "the last one in flight"
    bench.acked("M", (8, 9, ACCEPT))
    assert (bench.spso, bench.core.overview().end_offset, bench.core.speo) == (10, 10, 10), "the next one to fetch"
    bench = Bench(5, batches=(StateBatch(8, 9, 0, 1),), log=[(0, 9)])
    assert bench.fetch() == [(5, 7, 1), (8, 9, 2)]


@pytest.mark.rule("PL-220")
@pytest.mark.parametrize(
    ("fields", "retired"),
    [
        ({"max_records": 0}, False),
        ({"batches": ()}, False),
        ({"batches": (Header(0, 3),), "last_read_offset": 3}, False),
        ({}, True),
    ],
    ids=["no budget", "nothing read", "read below the start offset", "not active"],
)
def test_an_acquisition_may_have_nothing_to_take(fields: dict[str, object], retired: bool) -> None:
    bench = Bench(4, log=THREE)
    assert bench.lock(1) is not None
    if retired:
        bench.do(ev.Retire(GroupIdNotFoundError()))
    batches = (Header(0, 9),)
    event = ev.Acquire(1, "M", 0, 500, 500, 4, batches, 9, False, (), bench.settings)._replace(**fields)  # type: ignore[arg-type]
    assert one(bench.do(event), fx.Acquired).ranges == ()
    assert bench.records() == []
    assert bench.core.fetch_lock is None


@pytest.mark.rule("PL-130", "PL-133")
def test_finished_records_and_holes_behind_one_that_is_held_count_as_in_flight_and_stall_new_deliveries() -> None:
    bench = limited(12, [(0, 3), (8, 11), (12, 19)])
    assert bench.core.in_flight == 0
    assert bench.fetch(until=11) == [(0, 11, 1)]
    bench.acked("M", (1, 11, ACCEPT))
    assert bench.core.in_flight == 12
    bench.now += LOCK_MS - 1
    bench.ack("M", (0, 0, RENEW))
    bench.pass_time(LOCK_MS - 1)
    assert bench.fetch("N") == []
    bench.acked("M", (0, 0, ACCEPT))
    assert bench.core.in_flight == 0
    assert bench.fetch("N") == [(12, 19, 1)]


@pytest.mark.rule("PL-253")
def test_fetches_of_one_member_acquire_independently_and_nothing_is_handed_out_twice() -> None:
    bench = Bench(log=THREE)
    assert bench.fetch(max_records=5) == [(0, 9, 1)]
    assert bench.fetch(max_records=5) == [(10, 19, 1)]
    bench.acked("M", (0, 9, RELEASE))
    assert bench.fetch("N", until=19) == [(0, 9, 2)]
    assert bench.fetch("M", until=19) == []
    assert bench.records() == [(0, 9, 1, 2), (10, 19, 1, 1)]


@pytest.mark.rule("PL-223", "PL-226")
def test_a_full_window_takes_nothing_of_what_lies_past_it_when_the_log_lost_what_it_offers() -> None:
    bench = limited(30, [*THREE, (30, 39)])
    bench.fetch(max_records=30)
    bench.acked("M", (20, 29, RELEASE))
    del bench.log[2]
    assert bench.fetch("N") == []
    assert bench.records() == [(0, 19, 1, 1), (20, 29, 4, 1)]
    bench.acked("M", (0, 19, ACCEPT))
    assert bench.spso == 30


@pytest.mark.rule("PL-230", "PL-232", "PL-236")
def test_the_holes_of_one_read_are_acquired_and_those_between_two_reads_are_not() -> None:
    log = [(0, 3), (8, 11)]
    assert Bench(log=log).fetch() == [(0, 11, 1)]
    assert Bench(log=log).fetch(max_records=6) == [(0, 5, 1)], "the limit falls into the hole, and ends the range there"
    assert Bench(log=log).fetch(max_records=6, mode=1) == [(0, 5, 1)], "offsets without a record count"
    bench = Bench(log=log)
    assert bench.fetch(until=3) == [(0, 3, 1)]
    assert bench.fetch() == [(8, 11, 1)]
    assert bench.records() == [(0, 3, 1, 1), (8, 11, 1, 1)]


@pytest.mark.rule("PL-227")
def test_offsets_come_in_their_order_whether_they_were_released_or_are_new() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    assert bench.fetch(until=9) == [(0, 9, 1)]
    bench.acked("M", (5, 6, RELEASE))
    assert bench.fetch("N", max_records=4, mode=1) == [(5, 6, 2), (10, 11, 1)]
    bench = Bench(10, batches=(StateBatch(15, 20, 0, 1),), log=[(10, 29)])  # 10 to 14 have never been delivered
    assert bench.fetch() == [(10, 14, 1), (15, 20, 2), (21, 29, 1)]


@pytest.mark.rule("PL-230", "PL-606", "PL-607", "PL-608")
def test_a_range_ends_with_its_hole_of_the_stored_state_and_what_is_left_of_it_comes_next() -> None:
    bench = Bench(10, batches=(StateBatch(15, 20, 0, 1), StateBatch(24, 30, 2, 1)), log=[(10, 19), (20, 30)])
    assert bench.fetch(max_records=3) == [(10, 14, 1)]
    assert bench.core.overview().gap_window == (21, 30)
    assert bench.fetch(max_records=6, mode=1) == [(15, 20, 2)]
    assert bench.fetch("N", max_records=2, mode=1) == [(21, 22, 1)]
    assert bench.fetch("N") == [(23, 23, 1)]
    bench.ack("M", (10, 20, ACCEPT))
    assert written(bench.persisted()) == (21, 7, [])


@pytest.mark.rule("PL-236", "PL-237")
def test_record_limit_mode_makes_one_batch_whatever_the_batch_size_beside_a_member_of_the_other_mode() -> None:
    bench = Bench(log=THREE)
    assert bench.fetch(max_records=15, batch_size=5, mode=1) == [(0, 14, 1)]
    assert bench.core.overview().batch_count == 1
    assert bench.fetch("N", batch_size=5) == [(15, 19, 1), (20, 29, 1)]


def failed_once_and_twice() -> Bench:
    """A bench with one cached batch: 0-4 have been delivered once, 5-9 twice, and the third delivery is the last."""
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.acked("M", (5, 9, RELEASE))
    bench.fetch("N")
    bench.acked("N", (5, 9, RELEASE))
    bench.acked("M", (0, 4, RELEASE))
    bench.set(delivery_count_limit=3)
    return bench


@pytest.mark.rule("PL-240")
def test_a_pass_ends_before_a_record_whose_next_delivery_is_its_last() -> None:
    bench = failed_once_and_twice()
    assert bench.fetch() == [(0, 4, 2)]
    assert bench.fetch() == [(5, 5, 3)]
    assert bench.fetch() == [(6, 6, 3)]
    bench = failed_once_and_twice()
    assert bench.fetch(max_records=2, mode=1) == [(0, 1, 2)], "the limit ends a pass of record-limit mode"


@pytest.mark.rule("PL-240", "PL-242")
def test_a_record_at_its_last_delivery_comes_alone_though_those_behind_it_have_failed_less() -> None:
    bench = Bench(log=[(0, 9)])
    assert bench.fetch() == [(0, 9, 1)]
    bench.acked("M", (5, 9, RELEASE))
    for count in (1, 2, 3, 4):
        bench.acked("M", (0, 0, RELEASE))
        if count < 4:
            assert bench.fetch(max_records=1, mode=1) == [(0, 0, count + 1)]
    assert bench.fetch() == [(0, 0, 5)]
    assert bench.fetch() == [(5, 9, 2)]


@pytest.mark.rule("PL-241", "PL-242")
@pytest.mark.parametrize(
    ("limit", "taken"),
    [(5, [500, 500, 500, 250, 1]), (10, [500] * 5 + [250, 125, 62, 31, 1]), (2, [500, 500])],
)
def test_a_batch_that_fails_again_and_again_comes_in_smaller_parts(limit: int, taken: list[int]) -> None:
    found = []
    for count in range(limit):
        bench = Bench(batches=(StateBatch(0, 499, 0, count),), log=[(0, 499)])
        bench.set(delivery_count_limit=limit)
        ((first, last, delivery),) = bench.fetch()
        assert (first, delivery) == (0, count + 1)
        found.append(last - first + 1)
    assert found == taken


def test_a_pass_that_took_records_ends_before_a_batch_that_failed_often_and_takes_nothing_after_it() -> None:
    bench = Bench(batches=(StateBatch(0, 9, 0, 1), StateBatch(10, 19, 0, 3)), log=THREE)
    assert bench.fetch() == [(0, 9, 2)]


@pytest.mark.scenario("S-045")
def test_a_natural_gap_belongs_to_the_range_before_it() -> None:
    bench = Bench(start=2, log=[(2, 6), (10, 14), (15, 21), (22, 27)])
    assert bench.fetch(batch_size=5, max_records=100) == [(2, 9, 1), (10, 14, 1), (15, 21, 1), (22, 27, 1)]
