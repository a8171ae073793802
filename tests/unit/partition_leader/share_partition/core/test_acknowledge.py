"""Acknowledgements amid other events: expiring locks, other members, failing writes, a moving start offset."""

from __future__ import annotations

import pytest

from kip932.errors import (
    CoordinatorNotAvailableError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    InvalidRecordStateError,
    InvalidRequestError,
    KafkaError,
)
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.status import Status
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, written

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
AWAY = CoordinatorNotAvailableError()


def fetched() -> Bench:
    bench = Bench(log=[(0, 9), (10, 19)])
    assert bench.fetch(max_records=5) == [(0, 9, 1)]
    return bench


@pytest.mark.rule("PL-002", "PL-307")
def test_the_start_offset_waits_for_a_pending_accept_and_its_write_wins_over_the_end_of_the_lock() -> None:
    bench = fetched()
    op = bench.ack("M", (0, 9, ACCEPT))
    assert bench.spso == 0
    assert bench.pass_time(LOCK_MS) == []
    assert bench.fetch("N", until=9) == []
    bench.persisted()
    assert bench.error(op) is None
    assert bench.spso == 10


@pytest.mark.rule("PL-002", "T13")
def test_a_session_that_closes_gives_back_what_is_not_pending() -> None:
    bench = fetched()
    op = bench.ack("M", (0, 4, ACCEPT))
    bench.release("M")
    assert written(bench.persisted()) == (5, 0, [])
    assert written(bench.persisted()) == (5, 0, [(5, 9, 0, 1)])
    assert bench.error(op) is None


@pytest.mark.rule("PL-303", "PL-308")
def test_a_lock_that_is_due_ends_before_the_acknowledgement_of_that_moment() -> None:
    bench = fetched()
    bench.now += LOCK_MS - 1
    assert bench.replies.get(bench.ack("M", (0, 0, ACCEPT))) is None, "it waits for its write"
    bench.persisted()
    bench.now += 1
    assert isinstance(bench.error(bench.ack("M", (1, 9, ACCEPT))), InvalidRecordStateError)
    bench.persisted()
    assert bench.records() == [(1, 9, 0, 1)]
    bench.fetch("N", until=9)
    assert isinstance(bench.error(bench.ack("M", (1, 9, ACCEPT))), InvalidRecordStateError), "another member holds them"
    assert bench.error(bench.ack("M", (0, 0, ACCEPT))) is None, "the start offset is past it"
    bench.acked("N", (5, 5, ACCEPT))
    assert isinstance(bench.error(bench.ack("M", (5, 5, ACCEPT))), InvalidRecordStateError), "it is finished"


@pytest.mark.scenario("S-118")
@pytest.mark.rule("PL-324", "PL-325")
def test_a_record_may_be_renewed_any_number_of_times_by_its_holder_alone() -> None:
    bench = fetched()
    for _ in range(50):
        bench.now += LOCK_MS - 1
        assert bench.error(bench.ack("M", (0, 9, RENEW))) is None
        assert isinstance(bench.error(bench.ack("N", (0, 9, RENEW))), InvalidRecordStateError)
    assert bench.records() == [(0, 9, 1, 1)]
    assert bench.core.next_deadline() == bench.now + LOCK_MS
    assert not bench.writes


@pytest.mark.rule("PL-301", "PL-326")
def test_a_changed_lock_duration_counts_for_later_locks_and_a_renewal_may_shorten_one() -> None:
    bench = fetched()
    began = bench.now
    bench.set(lock_ms=5_000)
    assert bench.core.next_deadline() == began + LOCK_MS
    bench.fetch("N", max_records=5)
    assert bench.core.next_deadline() == began + 5_000
    bench.acked("N", (10, 19, ACCEPT))
    assert bench.core.next_deadline() == began + LOCK_MS
    bench.now += 1
    assert isinstance(bench.error(bench.ack("M", (0, 9, RENEW), (40, 40, ACCEPT))), InvalidRequestError)
    assert bench.core.next_deadline() == began + 1 + 5_000, "the renewal stays, though the request was refused"


@pytest.mark.rule("PL-404", "PL-622", "PL-103")
def test_what_the_log_start_has_passed_needs_no_write_and_does_not_count_as_in_flight() -> None:
    bench = fetched()
    bench.do(ev.LogStartMoved(5))
    assert bench.core.in_flight == 5
    assert bench.error(bench.ack("M", (0, 4, ACCEPT))) is None
    assert not bench.writes
    bench.ack("M", (5, 9, RELEASE))
    bench.do(ev.LogStartMoved(7))
    bench.failed(AWAY)
    bench.pass_time(LOCK_MS)
    assert bench.persisted().counters.n_timeout == 8, "5 and 6 were archived for good; 0-4 and 7-9 were still held"


@pytest.mark.rule("PL-405")
def test_a_range_must_end_within_the_cached_batches_and_begin_in_one_but_may_hold_holes() -> None:
    bench = Bench(3, log=[(3, 5), (9, 12)])
    assert isinstance(bench.error(bench.ack("M", (3, 4, ACCEPT))), InvalidRecordStateError), "nothing is cached"
    bench.fetch(until=5)
    bench.fetch()
    assert isinstance(bench.error(bench.ack("M", (4, 13, ACCEPT))), InvalidRequestError), "it ends past the last batch"
    assert isinstance(bench.error(bench.ack("M", (6, 7, ACCEPT))), InvalidRequestError), "the batch ends before it"
    assert not bench.writes
    assert bench.acked("M", (1, 12, ACCEPT)) is None, "it begins below the start offset and spans a hole"
    assert bench.spso == 13


@pytest.mark.rule("PL-414", "PL-125")
def test_what_went_back_is_not_counted_as_complete_by_the_next_write() -> None:
    bench = fetched()
    bench.ack("M", (3, 8, ACCEPT))
    assert written(bench.failed(AWAY)) == (0, 6, [(3, 8, 2, 1)])
    bench.ack("M", (9, 9, ACCEPT))
    assert written(bench.persisted()) == (0, 1, [(9, 9, 2, 1)])


@pytest.mark.rule("PL-705")
def test_operations_that_share_a_write_fail_with_it() -> None:
    bench = fetched()
    first = bench.ack("M", (0, 0, ACCEPT))
    merged = [bench.ack("M", (3, 3, ACCEPT)), bench.ack("M", (5, 5, RELEASE))]
    bench.persisted()
    assert bench.error(first) is None
    assert written(bench.failed(AWAY)) == (1, 1, [(3, 3, 2, 1), (5, 5, 0, 1)])
    assert [type(bench.error(op)) for op in merged] == [CoordinatorNotAvailableError] * 2
    assert bench.records() == [(1, 9, 1, 1)]


@pytest.mark.rule("PL-520")
def test_records_whose_release_could_not_be_written_stay_with_their_member_until_their_lock_ends() -> None:
    bench = fetched()
    bench.release("M")
    bench.failed(AWAY)
    assert bench.records() == [(0, 9, 1, 1)]
    bench.pass_time(LOCK_MS)
    assert bench.records() == [(0, 9, 0, 1)]


@pytest.mark.rule("PL-630")
@pytest.mark.parametrize("error", [GroupIdNotFoundError(), FencedStateEpochError()])
def test_what_the_write_of_a_release_is_answered_drops_the_object(error: KafkaError) -> None:
    bench = fetched()
    bench.release("M")
    bench.failed(error)
    assert bench.core.status is Status.FENCED
