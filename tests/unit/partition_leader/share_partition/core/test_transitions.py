"""Every row of the table of record states, T1 … T19 (PL-102), and transitions that are refused."""

from __future__ import annotations

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRecordStateError
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, one, written

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def fetched(**changes: int | bool) -> Bench:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.set(**changes)
    assert bench.fetch(max_records=5) == [(0, 9, 1)]
    return bench


@pytest.mark.rule("T1", "T3", "T5", "PL-105", "PL-203")
def test_each_acquisition_counts_as_a_delivery() -> None:
    bench = fetched()
    assert bench.records() == [(0, 9, 1, 1)]
    bench.acked("M", (0, 9, RELEASE))
    assert bench.records() == [(0, 9, 0, 1)]
    assert bench.fetch("N", max_records=5) == [(0, 9, 2)]


@pytest.mark.rule("T4", "T8", "T10", "PL-409", "PL-702")
def test_accept_reject_and_gap_end_a_record() -> None:
    bench = fetched()
    bench.ack("M", (3, 3, ACCEPT), (4, 4, REJECT), (5, 5, GAP))
    write = bench.persisted()
    assert written(write) == (0, 3, [(3, 3, 2, 1), (4, 5, 4, 1)])
    assert write.counters == fx.Counters(n_accept=1, n_reject=1, max_dc=1, sum_dc=3)
    assert bench.records() == [(0, 2, 1, 1), (3, 3, 2, 1), (4, 5, 4, 1), (6, 9, 1, 1)]


@pytest.mark.rule("T4", "PL-001", "PL-408", "PL-703")
def test_one_type_for_each_offset() -> None:
    bench = fetched()
    bench.ack("M", (0, 9, (1, 2, 1, 2, 1, 2, 1, 2, 1, 2)))
    write = bench.persisted()
    assert write.start_offset == 1
    assert write.delivery_complete_count == 4
    assert [tuple(b[:4]) for b in write.state_batches] == [(at, at, 2 - at % 2 * 2, 1) for at in range(1, 10)]
    assert bench.fetch("N", until=9) == [(at, at, 2) for at in range(1, 10, 2)]


@pytest.mark.rule("T9", "T15", "PL-904", "PL-905", "PL-125", "X2")
def test_reject_goes_to_the_dead_letter_queue() -> None:
    bench = fetched(dlq_enabled=True)
    bench.ack("M", (2, 3, REJECT), (4, 4, GAP))
    assert written(bench.persisted()) == (0, 1, [(2, 3, 3, 1), (4, 4, 4, 1)])
    assert [(d.ranges, d.cause) for d in bench.dead] == [(((2, 3, 1),), "client reject")]
    bench.do(ev.DlqDone(bench.dead[0].dead_letter_id))
    write = bench.persisted()
    assert written(write) == (0, 3, [(2, 3, 4, 1)])
    assert write.cause == fx.CAUSE_DLQ


@pytest.mark.rule("T11", "PL-303", "PL-324", "PL-325", "PL-001", "PL-302")
def test_renew_gives_a_full_lock_without_a_write() -> None:
    bench = fetched()
    bench.now += LOCK_MS - 1
    op = bench.ack("M", (0, 4, RENEW))
    assert bench.replies[op] == fx.Reply(op, None, False, [0, 0, 0, 0, 5])
    bench.pass_time(1)
    assert bench.records() == [(0, 4, 1, 1), (5, 9, 0, 1)]
    bench.persisted()
    bench.pass_time(LOCK_MS - 2)
    assert bench.records()[0] == (0, 4, 1, 1)
    bench.pass_time(1)
    assert bench.records() == [(0, 9, 0, 1)]


@pytest.mark.rule("PL-323", "PL-326")
def test_renewals_stay_when_the_request_is_refused_later() -> None:
    bench = fetched()
    bench.now += 10
    assert isinstance(bench.acked("M", (0, 9, RENEW), (10, 12, ACCEPT)), Exception)
    assert bench.core.next_deadline() == bench.now + LOCK_MS
    bench.set(renew_enabled=False)
    assert isinstance(bench.acked("M", (0, 9, RENEW)), InvalidRecordStateError)


@pytest.mark.rule("T12", "PL-305", "PL-306", "PL-214", "PL-406", "X2", "X3")
def test_locks_that_end_together_make_one_write() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch(max_records=5)
    bench.fetch("N", max_records=5)
    assert bench.core.next_deadline() == bench.now + LOCK_MS
    effects = bench.pass_time(LOCK_MS)
    assert written(one(effects, fx.Persist)) == (0, 0, [(0, 19, 0, 1)])
    assert one(effects, fx.Persist).counters.n_timeout == 20
    assert one(effects, fx.Persist).cause == fx.CAUSE_LOCK_EXPIRY
    assert one(effects, fx.Wake) is not None
    assert isinstance(bench.acked("M", (0, 9, ACCEPT)), InvalidRecordStateError)  # PL-308


@pytest.mark.rule("T12", "PL-104", "X3")
def test_expiry_reads_the_limit_of_that_moment() -> None:
    bench = fetched()
    bench.set(delivery_count_limit=1)
    bench.pass_time(LOCK_MS)
    write = bench.persisted()
    assert (written(write), write.counters.n_limit) == ((10, 0, []), 10)
    assert bench.spso == 10


@pytest.mark.rule("T12", "PL-305", "T7")
@pytest.mark.parametrize("succeeds", [True, False])
def test_expiry_at_the_limit_writes_before_the_dead_letter_queue(succeeds: bool) -> None:
    bench = fetched(delivery_count_limit=1, dlq_enabled=True)
    bench.pass_time(LOCK_MS)
    assert written(bench.writes[0]) == (0, 0, [(0, 9, 3, 1)])
    assert not bench.dead
    if not succeeds:
        bench.failed(CoordinatorNotAvailableError(), unknown=True)
        assert not bench.dead, "it is unknown whether Archiving is stored"
        bench.pass_time(5_000)
        assert written(bench.writes[0]) == (0, 0, [(0, 9, 3, 1)])
    bench.persisted()
    assert [letter.ranges for letter in bench.dead] == [((0, 9, 1),)]


@pytest.mark.rule("T13", "PL-520", "12.4", "PL-106", "X2")
def test_a_closed_session_gives_back_what_it_holds_and_the_count_stays() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch("M", max_records=5)
    bench.fetch("N", max_records=5)
    op = bench.release("M")
    write = bench.persisted()
    assert written(write) == (0, 0, [(0, 9, 0, 1)])
    assert write.cause == fx.CAUSE_SESSION_RELEASE
    assert bench.error(op) is None
    assert bench.records() == [(0, 9, 0, 1), (10, 19, 1, 1)]


@pytest.mark.rule("PL-505")
def test_a_release_may_name_ranges() -> None:
    bench = fetched()
    bench.release("M", ((2, 4, 1),))
    bench.persisted()
    assert bench.records() == [(0, 1, 1, 1), (2, 4, 0, 1), (5, 9, 1, 1)]
    op = bench.release("N")
    assert bench.replies[op] == fx.Reply(op, None, False)


@pytest.mark.rule("T14", "PL-304", "PL-622")
@pytest.mark.parametrize("closing", [True, False])
def test_leftovers_below_the_start_offset_are_archived(closing: bool) -> None:
    bench = fetched()
    bench.do(ev.LogStartMoved(5))
    if closing:
        bench.release("M")
    else:
        bench.pass_time(LOCK_MS)
    assert written(bench.persisted()) == (5, 0, [(5, 9, 0, 1)])
    assert bench.core.next_fetch_offset() == 5
    assert bench.fetch("N", until=9) == [(5, 9, 2)]


@pytest.mark.rule("T16", "PL-103", "PL-620", "PL-001", "PL-202", "PL-414")
def test_a_pending_release_that_the_log_start_passes_stays_archived() -> None:
    bench = fetched()
    bench.ack("M", (0, 9, RELEASE))
    bench.do(ev.LogStartMoved(5))
    bench.failed(CoordinatorNotAvailableError())
    assert bench.records() == [(5, 9, 1, 1)]
    assert bench.core.next_fetch_offset() == 10
    bench.pass_time(LOCK_MS)
    assert bench.core.next_fetch_offset() == 5


@pytest.mark.rule("12.26", "PL-620")
def test_what_is_held_below_the_start_offset_does_not_stop_it() -> None:
    bench = fetched()
    bench.do(ev.LogStartMoved(5))
    assert bench.acked("M", (5, 9, ACCEPT)) is None
    assert bench.spso == 10


@pytest.mark.rule("12.19")
def test_records_that_the_start_offset_passes_are_forgotten_and_not_archived() -> None:
    bench = fetched()
    bench.ack("M", (0, 4, ACCEPT), (5, 5, REJECT))
    assert written(bench.persisted()) == (6, 0, [])
    assert bench.records() == [(6, 9, 1, 1)]


@pytest.mark.rule("PL-309")
def test_a_new_leader_holds_nobodys_records_and_waits_for_no_lock() -> None:
    """The successor loads those records as they are stored: available, with their delivery counts."""
    bench = Bench(batches=(StateBatch(0, 4, 0, 2),), log=[(0, 9)])
    bench.pass_time(10 * LOCK_MS)
    assert bench.persisted().counters == fx.Counters()  # this write only announces the new leader's claim
    assert bench.records() == [(0, 4, 0, 2)]
    assert bench.core.next_deadline() is None
    assert bench.fetch() == [(0, 4, 3), (5, 9, 1)]
    assert bench.core.next_deadline() == bench.now + LOCK_MS


@pytest.mark.rule("PL-620", "PL-123")
def test_the_log_start_empties_what_lies_below_it() -> None:
    bench = fetched()
    bench.do(ev.LogStartMoved(40))
    overview = bench.core.overview()
    assert (overview.start_offset, overview.end_offset, overview.in_flight) == (40, 40, 0)
    bench.do(ev.LogStartMoved(20))
    assert bench.spso == 40


@pytest.mark.rule("PL-620", "PL-606")
def test_a_log_start_within_a_hole_of_the_stored_state_shortens_it_and_one_past_it_ends_it() -> None:
    bench = Bench(10, batches=(StateBatch(21, 30, 2, 1),), log=[(10, 20), (21, 30)])
    bench.do(ev.LogStartMoved(15))
    assert bench.core.overview().gap_window == (15, 30)
    assert (bench.spso, bench.core.next_fetch_offset(), bench.core.overview().delivery_complete_count) == (15, 15, 10)
    bench.do(ev.LogStartMoved(21))
    assert bench.core.overview().gap_window is None
    assert bench.spso == 31


@pytest.mark.rule("T17", "PL-226", "PL-621", "PL-701")
def test_available_records_that_the_log_has_lost_are_archived() -> None:
    bench = Bench(batches=(StateBatch(0, 9, 0, 1), StateBatch(10, 19, 0, 1)), log=[(10, 19)])
    assert bench.fetch() == [(10, 19, 2)]
    assert bench.spso == 10
    assert not bench.writes
    bench.pass_time(5_000)
    assert written(bench.persisted()) == (10, 0, [])


@pytest.mark.rule("T17", "PL-226", "PL-621")
def test_records_that_the_log_has_lost_in_the_middle_are_written_as_archived() -> None:
    bench = Bench(log=[(0, 9), (10, 19), (20, 29)])
    bench.fetch(batch_size=10)
    bench.acked("M", (10, 29, RELEASE))
    del bench.log[1]
    assert bench.fetch() == [(20, 29, 2)]
    assert not bench.writes
    bench.pass_time(5_000)
    assert written(bench.persisted()) == (0, 10, [(10, 19, 4, 1)])


@pytest.mark.rule("T19", "PL-001", "PL-002", "PL-705", "PL-202", "PL-407")
def test_pending_records_wait_for_their_write() -> None:
    bench = fetched()
    first = bench.ack("M", (0, 4, RELEASE))
    second = bench.ack("M", (2, 2, ACCEPT))
    assert isinstance(bench.error(second), InvalidRecordStateError)
    third = bench.ack("M", (5, 9, RELEASE))
    assert third not in bench.replies
    assert bench.core.next_fetch_offset() == 10, "pending records are not offered (PL-202)"
    assert len(bench.writes) == 1
    bench.persisted()
    assert first in bench.replies
    assert third not in bench.replies
    assert written(bench.persisted()) == (0, 0, [(5, 9, 0, 1)])
    assert bench.error(third) is None


@pytest.mark.rule("T5", "T6", "PL-104", "PL-107", "PL-251")
def test_only_records_at_the_limit_are_archived_by_a_release() -> None:
    bench = Bench(batches=(StateBatch(0, 4, 0, 4), StateBatch(5, 9, 0, 0)), log=[(0, 9)])
    bench.set(delivery_count_limit=10)
    assert bench.fetch() == [(0, 4, 5), (5, 9, 1)]
    bench.set(delivery_count_limit=5)
    bench.ack("M", (0, 9, (2,) * 10))
    write = bench.persisted()
    assert (written(write), write.counters.n_limit) == ((5, 0, [(5, 9, 0, 1)]), 5)


@pytest.mark.rule("PL-104")
def test_a_record_at_a_lowered_limit_is_delivered_once_more_and_a_raised_limit_allows_more() -> None:
    bench = Bench(batches=(StateBatch(0, 0, 0, 4),), log=[(0, 0)])
    bench.set(delivery_count_limit=4)
    assert bench.fetch() == [(0, 0, 5)], "the limit is not read when records are acquired"
    bench.set(delivery_count_limit=6)
    bench.ack("M", (0, 0, (2,)))
    write = bench.persisted()
    assert (written(write), write.counters.n_limit) == ((0, 0, [(0, 0, 0, 5)]), 0)
    assert bench.fetch() == [(0, 0, 6)]


@pytest.mark.rule("PL-101", "PL-604")
def test_what_is_stored_is_checked() -> None:
    assert Bench(batches=(StateBatch(0, 9, 1, 3),)).records() == [(0, 9, 0, 3)]
    for bad in (StateBatch(0, 9, 7, 1), StateBatch(5, 4, 0, 1), StateBatch(-1, 3, 0, 1)):
        bench = Bench(batches=(bad,))
        assert bench.core.status.value == "FAILED"
        assert one(bench.seen, fx.Dropped).error.name == "UNKNOWN_SERVER_ERROR"
