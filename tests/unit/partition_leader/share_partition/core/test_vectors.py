"""The vectors V1 … V18 of the specification (§11)."""

from __future__ import annotations

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRecordStateError, InvalidRequestError
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import events as ev
from shard_runtime.config.group_config import GroupConfig
from tests.support.batch_headers import Header
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, written

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
THREE = [(0, 9), (10, 19), (20, 29)]


@pytest.mark.rule("V1", "PL-221", "PL-230", "PL-235")
def test_max_records_is_rounded_up_to_the_log_batch() -> None:
    assert Bench(log=THREE).fetch(max_records=5, batch_size=100) == [(0, 9, 1)]


@pytest.mark.rule("V2", "PL-236", "T2", "PL-203")
def test_record_limit_mode_is_exact_and_leaves_the_rest_available() -> None:
    bench = Bench(log=THREE)
    assert bench.fetch(max_records=5, mode=1) == [(0, 4, 1)]
    assert bench.records() == [(0, 4, 1, 1), (5, 9, 0, 0)]
    assert bench.fetch("N", max_records=5, mode=1) == [(5, 9, 1)]
    assert bench.core.overview().batch_count == 1


@pytest.mark.rule("V3", "V4", "PL-235")
@pytest.mark.parametrize(
    ("batch_size", "expected"),
    [(10, [(0, 9, 1), (10, 19, 1), (20, 29, 1)]), (15, [(0, 19, 1), (20, 29, 1)]), (30, [(0, 29, 1)])],
)
def test_long_ranges_are_cut_at_log_batches(batch_size: int, expected: list[tuple[int, int, int]]) -> None:
    bench = Bench(log=THREE)
    assert bench.fetch(max_records=30, batch_size=batch_size) == expected
    assert bench.core.overview().batch_count == len(expected)


def full_window() -> Bench:
    bench = Bench(
        log=[(first, first + 9) for first in range(0, 500, 10)],
        settings=GroupConfig(LOCK_MS, max_record_locks=100),
    )
    bench.fetch(max_records=100)
    assert bench.core.in_flight == 100
    return bench


@pytest.mark.rule("V5", "PL-131")
def test_a_full_window_waits_until_the_start_offset_moves() -> None:
    bench = full_window()
    assert not bench.core.can_acquire(bench.settings)
    assert bench.fetch() == []
    assert bench.acked("M", (0, 9, ACCEPT)) is None
    assert bench.spso == 10
    assert bench.fetch() == [(100, 109, 1)]


@pytest.mark.rule("V6", "PL-132", "PL-222", "PL-131")
def test_a_full_window_still_redelivers() -> None:
    bench = full_window()
    bench.acked("M", (50, 50, RELEASE))
    assert bench.core.can_acquire(bench.settings)
    assert bench.fetch("N") == [(50, 50, 2)]
    assert bench.fetch("N") == []


@pytest.mark.rule("INV-6")
@pytest.mark.rule("V7", "PL-405", "PL-410")
def test_a_refused_request_leaves_nothing_behind() -> None:
    bench = Bench(log=THREE)
    bench.fetch(max_records=5)
    assert isinstance(bench.acked("M", (0, 4, ACCEPT), (20, 20, REJECT)), InvalidRequestError)
    assert bench.records() == [(0, 9, 1, 1)]
    assert not bench.writes


@pytest.mark.rule("V8", "PL-406", "PL-407")
def test_only_the_holder_acknowledges() -> None:
    bench = Bench(log=THREE)
    bench.fetch(max_records=5)
    assert isinstance(bench.acked("N", (0, 9, ACCEPT)), InvalidRecordStateError)
    assert isinstance(bench.acked("N", (3, 4, ACCEPT)), InvalidRecordStateError)


@pytest.mark.rule("V9", "PL-404", "PL-411")
def test_a_duplicate_acknowledgement_succeeds_without_a_write() -> None:
    bench = Bench(log=THREE)
    bench.fetch(max_records=5)
    bench.acked("M", (0, 9, ACCEPT))
    op = bench.ack("M", (0, 9, ACCEPT))
    assert bench.spso == 10
    assert not bench.writes
    assert (bench.replies[op].error, bench.replies[op].persisted) == (None, False)


def expired_at_limit() -> Bench:
    """Record 1 was accepted; then 0 was archived when its lock expired at the delivery limit. In memory the start
    offset has passed both, but no write has confirmed it."""
    bench = Bench(batches=(StateBatch(0, 0, 0, 4),), log=[(0, 0), (1, 1)])
    bench.set(delivery_count_limit=5)
    assert bench.fetch(until=0) == [(0, 0, 5)]
    assert bench.fetch() == [(1, 1, 1)]
    assert bench.acked("M", (1, 1, ACCEPT)) is None
    bench.pass_time(LOCK_MS)
    assert bench.spso == 2
    assert len(bench.writes) == 1
    return bench


@pytest.mark.rule("PL-404", "INV-4", "INV-11")
def test_a_no_op_by_a_start_offset_that_is_not_stored_waits_for_a_write_of_it() -> None:
    bench = expired_at_limit()
    op = bench.ack("M", (1, 1, ACCEPT))
    assert op not in bench.replies
    bench.persisted()
    assert op not in bench.replies
    assert written(bench.persisted()) == (2, 0, [])
    assert (bench.replies[op].error, bench.replies[op].persisted) == (None, True)
    again = bench.ack("M", (1, 1, ACCEPT))
    assert not bench.writes
    assert bench.error(again) is None


@pytest.mark.rule("PL-404", "INV-4", "INV-11")
def test_when_that_write_fails_the_no_op_does() -> None:
    bench = expired_at_limit()
    op = bench.ack("M", (1, 1, ACCEPT))
    bench.failed(CoordinatorNotAvailableError())
    bench.failed(CoordinatorNotAvailableError())
    assert isinstance(bench.error(op), CoordinatorNotAvailableError)


def at_limit(**changes: bool) -> Bench:
    bench = Bench(batches=(StateBatch(0, 9, 0, 4),), log=THREE)
    bench.set(delivery_count_limit=10, **changes)  # below a delivery count of 5 nothing is throttled (PL-241)
    assert bench.fetch(max_records=5) == [(0, 9, 5)]
    bench.set(delivery_count_limit=5)
    return bench


@pytest.mark.rule("V10", "T6", "PL-107", "PL-104")
def test_a_release_at_the_limit_archives() -> None:
    bench = at_limit()
    op = bench.ack("M", (0, 9, RELEASE))
    write = bench.persisted()
    assert written(write) == (10, 0, [])
    assert (write.counters.n_release, write.counters.n_limit, write.counters.sum_dc) == (10, 10, 50)
    assert bench.error(op) is None
    assert bench.spso == 10


@pytest.mark.rule("V11", "T7", "T15", "PL-904", "PL-905", "PL-704")
def test_a_release_at_the_limit_goes_to_the_dead_letter_queue_first() -> None:
    bench = at_limit(dlq_enabled=True)
    op = bench.ack("M", (0, 9, RELEASE))
    assert written(bench.persisted()) == (0, 0, [(0, 9, 3, 5)])
    assert bench.error(op) is None
    assert [(tuple(d.ranges[0]), d.cause) for d in bench.dead] == [((0, 9, 5), "delivery count exceeded")]
    assert bench.spso == 0
    bench.do(ev.DlqDone(bench.dead[0].dead_letter_id))
    assert written(bench.persisted()) == (10, 0, [])
    assert bench.spso == 10


@pytest.mark.rule("V12", "PL-404", "PL-620", "PL-622")
def test_acknowledgements_below_the_log_start_are_no_ops() -> None:
    bench = Bench(log=THREE)
    bench.fetch(max_records=5)
    bench.do(ev.LogStartMoved(5))
    assert bench.spso == 5
    assert bench.acked("M", (0, 9, ACCEPT)) is None
    assert bench.spso == 10


@pytest.mark.rule("V13", "PL-240", "PL-241", "PL-242", "PL-203", "12.20")
def test_a_batch_that_failed_thrice_comes_in_halves() -> None:
    bench = Bench(batches=(StateBatch(0, 9, 0, 3),), log=THREE)
    assert bench.fetch() == [(0, 4, 4)]
    assert bench.fetch() == [(5, 9, 4)]


@pytest.mark.rule("V14", "PL-240")
def test_the_last_delivery_is_for_each_record_alone() -> None:
    bench = Bench(batches=(StateBatch(0, 9, 0, 4),), log=[(0, 9)])
    assert [bench.fetch() for _ in range(11)] == [[(at, at, 5)] for at in range(10)] + [[]]


@pytest.mark.rule("V15", "PL-606", "PL-607", "PL-608", "PL-202")
def test_a_persister_gap_is_acquired_again() -> None:
    bench = Bench(10, batches=(StateBatch(21, 30, 2, 1),), log=[(10, 20), (21, 30)])
    assert bench.core.overview().gap_window == (10, 30)
    assert bench.core.next_fetch_offset() == 10
    assert bench.fetch() == [(10, 20, 1)]
    bench.acked("M", (10, 20, ACCEPT))
    assert bench.spso == 31


@pytest.mark.rule("V15b", "PL-608", "PL-223", "12.24")
def test_a_gap_that_the_log_has_lost_is_resolved() -> None:
    bench = Bench(10, batches=(StateBatch(21, 30, 2, 1),), log=[(21, 30)])
    assert bench.fetch() == []
    assert bench.core.overview().gap_window is None
    assert bench.spso == 31


@pytest.mark.rule("V16", "T19", "PL-414", "PL-731")
def test_a_failed_write_gives_the_records_back_to_their_holder() -> None:
    bench = Bench(log=THREE)
    bench.fetch(max_records=5)
    op = bench.ack("M", (0, 9, ACCEPT))
    bench.failed(CoordinatorNotAvailableError())
    assert isinstance(bench.error(op), CoordinatorNotAvailableError)
    assert bench.records() == [(0, 9, 1, 1)]
    assert bench.acked("M", (0, 9, ACCEPT)) is None
    assert bench.spso == 10


@pytest.mark.rule("V17", "PL-307", "PL-203")
def test_a_lock_that_ran_out_during_a_failed_write_frees_the_record() -> None:
    bench = Bench(log=THREE)
    bench.fetch(max_records=5)
    bench.ack("M", (0, 9, ACCEPT))
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError())
    assert bench.records() == [(0, 9, 0, 1)]
    assert bench.fetch("N", max_records=5) == [(0, 9, 2)]


@pytest.mark.scenario("S-129")
@pytest.mark.rule("PL-803", "T18")
def test_aborted_ranges_are_cut_out_of_acquired_ranges() -> None:
    spans, aborted = [(10, 14), (15, 19), (20, 34), (50, 57), (58, 67), (70, 74)], {10: 1, 58: 2, 70: 3}
    bench = Bench(10)
    bench.log = [Header(first, last, aborted.get(first, 9), is_transactional=True) for first, last in spans]
    ended = tuple(ev.AbortedTransaction(aborted[first], first, last + 1) for first, last in spans if first in aborted)
    got = bench.fetch(max_records=100, batch_size=10, committed=True, aborted=ended)
    assert got == [(15, 19, 1), (20, 49, 1), (50, 57, 1), (68, 69, 1)]
    assert bench.core.next_fetch_offset() == 75
    assert bench.spso == 15, "the records before it were archived without a lock"
    assert bench.records() == [(15, 57, 1, 1), (58, 67, 4, 1), (68, 69, 1, 1), (70, 74, 4, 1)]
    bench.acked("M", *((first, last, ACCEPT) for first, last, _ in got))
    assert bench.spso == 75


@pytest.mark.rule("V18", "T18", "PL-803", "PL-804")
def test_read_committed_hides_aborted_records_but_not_markers() -> None:
    bench = Bench()
    bench.log = [
        Header(0, 9, producer_id=5, is_transactional=True),
        Header(10, 10, producer_id=5, is_transactional=True, is_control=True, is_abort=True),
        Header(11, 20),
    ]
    aborted = (ev.AbortedTransaction(5, 0, 10),)
    assert bench.fetch(committed=True, aborted=aborted) == [(10, 20, 1)]
    assert bench.spso == 10
    assert bench.records() == [(10, 20, 1, 1)] or bench.records()[0][:2] == (10, 20)
    bench.acked("M", (10, 10, GAP), (11, 20, ACCEPT))
    assert bench.spso == 21
