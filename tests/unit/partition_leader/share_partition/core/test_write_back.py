"""Writes that fail, stay unanswered or must be repeated, and how a share-partition ends."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.state_batches import StateBatch, WriteStats
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.limits import LIMITS
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import DropReason, Status
from shard_runtime.config.group_config import GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, one, written

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
TIMED_OUT = errors.RequestTimedOutError()


def unanswered(ack_type: int) -> Bench:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch(max_records=5)
    op = bench.ack("M", (0, 9, ack_type))
    bench.failed(TIMED_OUT, unknown=True)
    assert isinstance(bench.error(op), errors.UnknownServerError)
    assert one(bench.seen, fx.ReadBackWanted).generation == 2 == bench.core.generation
    return bench


def test_the_counters_are_statistics_of_a_write_in_the_same_order() -> None:
    """The host inserts them between the cause and its own statistics."""
    assert WriteStats._fields[1 : 1 + len(fx.Counters._fields)] == fx.Counters._fields


def test_a_share_partition_shows_whether_it_waits_for_a_write() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch(max_records=5)
    assert not bench.core.overview().write_outstanding
    bench.ack("M", (0, 9, ACCEPT))
    assert bench.core.overview().write_outstanding
    bench.persisted()
    assert not bench.core.overview().write_outstanding


@pytest.mark.rule("PL-707", "PL-602")
def test_an_unanswered_write_that_landed_is_committed() -> None:
    bench = unanswered(ACCEPT)
    bench.do(ev.ReadBack(2, 7, 10, ()))
    assert bench.spso == 10
    bench = unanswered(RELEASE)
    assert fx.Wake() in bench.do(ev.ReadBack(2, 7, 0, (StateBatch(0, 9, 0, 1),))), "a parked fetch looks again"
    assert bench.records() == [(0, 9, 0, 1)]
    assert bench.fetch("N", max_records=5) == [(0, 9, 2)]


@pytest.mark.rule("PL-707", "PL-414")
def test_an_unanswered_write_that_did_not_land_is_rolled_back() -> None:
    bench = unanswered(ACCEPT)
    bench.do(ev.ReadBack(2, 7, 0, ()))
    assert bench.records() == [(0, 9, 1, 1)]
    assert bench.acked("M", (0, 9, ACCEPT)) is None
    assert bench.spso == 10


@pytest.mark.rule("PL-707", "SC-109")
def test_a_higher_stored_rank_wins_over_what_memory_wanted() -> None:
    bench = unanswered(RELEASE)
    bench.do(ev.ReadBack(2, 7, 0, (StateBatch(0, 4, 2, 1), StateBatch(6, 6, 0, 0))))
    assert bench.spso == 5
    assert bench.records() == [(5, 9, 1, 1)]


@pytest.mark.rule("PL-707", "PL-705", "PL-406")
def test_no_write_leaves_before_the_read_back() -> None:
    bench = unanswered(ACCEPT)
    bench.fetch("N", max_records=5)
    op = bench.ack("N", (10, 19, ACCEPT))
    assert not bench.writes
    assert isinstance(bench.error(bench.ack("M", (0, 9, ACCEPT))), errors.InvalidRecordStateError)
    bench.do(ev.ReadBack(1, 7, 10, ()))  # a read-back of another generation is ignored
    assert not bench.writes
    bench.do(ev.ReadBack(2, 7, 10, ()))
    write = bench.persisted()
    assert (write.generation, written(write)) == (2, (20, 0, []))
    assert bench.error(op) is None


@pytest.mark.rule("PL-707", "PL-307")
def test_a_lock_that_ends_during_the_read_back_frees_what_did_not_land() -> None:
    bench = unanswered(ACCEPT)
    bench.pass_time(LOCK_MS)
    bench.do(ev.ReadBack(2, 7, 0, (StateBatch(0, 4, 2, 1),)))
    assert bench.records() == [(5, 9, 0, 1)]


@pytest.mark.rule("PL-707", "PL-631")
def test_a_failed_read_back_retires_but_queued_writes_finish() -> None:
    bench = unanswered(ACCEPT)
    bench.fetch("N", max_records=5)
    op = bench.ack("N", (10, 19, ACCEPT))
    effects = bench.do(ev.ReadBackFailed(2, TIMED_OUT))
    assert one(effects, fx.Fenced).retiring
    assert one(effects, fx.Fenced).reason is DropReason.OUTCOME_UNKNOWN
    assert bench.core.status is Status.RETIRING
    assert written(one(effects, fx.Persist)) == (0, 10, [(10, 19, 2, 1)])
    bench.persisted()
    assert bench.error(op) is None
    assert one(bench.seen, fx.Dropped).generation == 2


@pytest.mark.rule("PL-707", "PL-634")
def test_a_read_back_of_another_state_epoch_retires() -> None:
    bench = unanswered(ACCEPT)
    bench.do(ev.ReadBack(2, 8, 500, ()))
    assert bench.core.status is Status.FENCED
    assert one(bench.seen, fx.Fenced).error.name == "NOT_LEADER_OR_FOLLOWER"
    assert one(bench.seen, fx.Fenced).reason is DropReason.STATE_REPLACED


@pytest.mark.rule("PL-707", "PL-305", "PL-621")
def test_an_unanswered_expiry_write_is_only_repeated() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.pass_time(LOCK_MS)
    bench.failed(TIMED_OUT, unknown=True)
    assert not any(isinstance(effect, fx.ReadBackWanted) for effect in bench.seen)
    assert bench.records() == [(0, 9, 0, 1)]
    assert bench.core.next_deadline() == bench.now + 5_000
    bench.pass_time(4_999)
    assert not bench.writes
    bench.pass_time(1)
    assert written(bench.failed(TIMED_OUT, unknown=True)) == (0, 0, [(0, 9, 0, 1)])
    bench.pass_time(5_000)
    write = bench.persisted()
    assert (written(write), write.counters.n_timeout) == ((0, 0, [(0, 9, 0, 1)]), 10)
    assert bench.core.next_deadline() is None


@pytest.mark.rule("PL-621", "PL-606", "INV-17")
def test_a_moved_start_offset_is_written_when_nothing_else_happens() -> None:
    bench = Bench()
    assert bench.core.next_deadline() is None
    bench.do(ev.LogStartMoved(50))
    for _ in range(3):  # until a write succeeds
        assert bench.core.next_deadline() == bench.now + 5_000
        bench.pass_time(4_999)
        assert not bench.writes
        bench.pass_time(1)
        assert written(bench.failed(TIMED_OUT, unknown=True)) == (50, 0, [])
    bench.pass_time(5_000)
    assert written(bench.persisted()) == (50, 0, [])
    assert bench.core.next_deadline() is None


@pytest.mark.rule("PL-307", "12.9")
@pytest.mark.parametrize("dlq", [True, False])
def test_an_expired_lock_at_the_limit_is_not_given_back(dlq: bool) -> None:
    bench = Bench(log=[(0, 9), (10, 19)], settings=GroupConfig(LOCK_MS, 1, dlq_enabled=dlq))
    bench.fetch(max_records=5)
    bench.ack("M", (2, 9, ACCEPT))
    bench.set(delivery_count_limit=5)
    bench.do(ev.SettingsChanged(bench.settings))  # the limit at the time of the acknowledgement applies
    bench.now += LOCK_MS
    bench.failed(errors.CoordinatorNotAvailableError())
    if dlq:
        assert bench.records() == [(0, 1, 0, 1), (2, 9, 3, 1)]
        assert written(bench.persisted()) == (0, 0, [(0, 1, 0, 1), (2, 9, 3, 1)])
        assert [d.ranges for d in bench.dead] == [((2, 9, 1),)]
    else:
        assert bench.records() == [(0, 1, 0, 1), (2, 9, 4, 1)]


@pytest.mark.rule("PL-307", "T14")
def test_a_roll_back_below_the_start_offset_archives() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.ack("M", (0, 9, ACCEPT))
    bench.do(ev.LogStartMoved(4))
    bench.now += LOCK_MS
    bench.failed(errors.CoordinatorNotAvailableError())
    assert bench.core.next_fetch_offset() == 4
    assert bench.fetch("N") == [(4, 9, 2)]
    bench.acked("N", (4, 9, ACCEPT))
    assert bench.spso == 10


@pytest.mark.rule("PL-606", "SC-99a")
def test_terminal_records_at_the_stored_start_are_passed_over_when_it_is_loaded() -> None:
    bench = Bench(100, batches=(StateBatch(100, 104, 2, 1), StateBatch(105, 109, 0, 1)), log=[(100, 109)])
    assert bench.spso == 105
    assert bench.fetch() == [(105, 109, 2)]


@pytest.mark.rule("PL-609", "12.3", "X2")
def test_a_resolved_start_offset_is_written_before_anything_is_served() -> None:
    bench = Bench(100, resolved=True, log=[(100, 109)])
    assert bench.core.status is Status.INITIALIZING
    assert bench.fetch() == []
    write = bench.persisted()
    assert (written(write), write.cause) == ((100, 0, []), fx.CAUSE_INIT)
    assert bench.fetch() == [(100, 109, 1)]
    failing = Bench(100, resolved=True)
    failing.failed(TIMED_OUT, unknown=True)
    assert failing.core.status is Status.FAILED


@pytest.mark.rule("PL-611", "PL-910")
def test_the_dead_letter_flow_goes_on_after_a_fail_over() -> None:
    bench = Bench(batches=(StateBatch(0, 4, 3, 5), StateBatch(5, 9, 3, 1)), log=[(0, 9)])
    assert [(d.ranges[0][:2], d.cause) for d in bench.dead] == [
        ((0, 4), "delivery count exceeded"),
        ((5, 9), "client reject"),
    ]
    for dead in bench.dead:
        bench.do(ev.DlqDone(dead.dead_letter_id))
    bench.persisted()
    bench.persisted()
    assert bench.spso == 10


@pytest.mark.scenario("S-111")
@pytest.mark.rule("PL-630", "PL-631", "PL-731", "PL-634")
@pytest.mark.parametrize(
    ("error", "seen", "status"),
    [
        (errors.NotCoordinatorError(), "COORDINATOR_NOT_AVAILABLE", Status.ACTIVE),
        (errors.CoordinatorLoadInProgressError(), "COORDINATOR_NOT_AVAILABLE", Status.ACTIVE),
        (errors.GroupIdNotFoundError(), "GROUP_ID_NOT_FOUND", Status.FENCED),
        (errors.UnknownTopicOrPartitionError(), "UNKNOWN_TOPIC_OR_PARTITION", Status.FENCED),
        (errors.FencedLeaderEpochError(), "NOT_LEADER_OR_FOLLOWER", Status.FENCED),
        (errors.FencedStateEpochError(), "NOT_LEADER_OR_FOLLOWER", Status.FENCED),
        (errors.InvalidRequestError(), "UNKNOWN_SERVER_ERROR", Status.FENCED),
        (errors.UnsupportedVersionError("x"), "UNKNOWN_SERVER_ERROR", Status.ACTIVE),
        (errors.KafkaStorageError(), "UNKNOWN_SERVER_ERROR", Status.ACTIVE),
    ],
)
def test_what_a_persister_error_means(error: errors.KafkaError, seen: str, status: Status) -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    op = bench.ack("M", (0, 9, ACCEPT))
    bench.failed(error)
    found = bench.error(op)
    assert found is not None
    assert (found.name, bench.core.status) == (seen, status)


@pytest.mark.rule("PL-630")
def test_an_expiry_write_drops_only_when_fenced() -> None:
    for error, status in (
        (errors.GroupIdNotFoundError(), Status.ACTIVE),
        (errors.FencedStateEpochError(), Status.FENCED),
    ):
        bench = Bench(log=[(0, 9)])
        bench.fetch()
        bench.pass_time(LOCK_MS)
        bench.failed(error)
        assert bench.core.status is status


@pytest.mark.rule("PL-630", "PL-634", "PL-632")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.GroupIdNotFoundError(), DropReason.STATE_REPLACED),
        (errors.FencedStateEpochError(), DropReason.STATE_REPLACED),
        (errors.FencedLeaderEpochError(), DropReason.LEADERSHIP_LOST),
    ],
)
def test_what_a_write_or_a_read_back_is_answered_says_why_the_object_goes(
    error: errors.KafkaError, reason: DropReason
) -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.ack("M", (0, 9, ACCEPT))
    bench.failed(error)
    assert one(bench.seen, fx.Fenced).reason is reason
    bench = unanswered(ACCEPT)
    bench.do(ev.ReadBackFailed(2, error))
    assert one(bench.seen, fx.Fenced).reason is reason


@pytest.mark.rule("PL-604", "PL-523")
def test_an_object_that_never_began_and_one_that_is_not_used_say_so() -> None:
    failed = SharePartition(1).handle(ev.InitializeFailed(errors.UnknownServerError()), 0)
    assert one(failed, fx.Fenced).reason is DropReason.INITIALIZE_FAILED
    assert one(Bench().do(ev.Retire(errors.GroupIdNotFoundError())), fx.Fenced).reason is DropReason.RELEASED


@pytest.mark.rule("PL-631", "PL-632")
def test_lost_leadership_stops_at_once() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch()
    first, second = bench.ack("M", (0, 4, ACCEPT)), bench.ack("M", (5, 9, ACCEPT))
    effects = bench.do(ev.Drop(errors.NotLeaderOrFollowerError()))
    assert {type(bench.error(op)) for op in (first, second)} == {errors.NotLeaderOrFollowerError}
    assert not one(effects, fx.Fenced).retiring
    assert one(effects, fx.Fenced).reason is DropReason.LEADERSHIP_LOST
    assert one(effects, fx.Dropped).generation == 1
    bench.persisted()
    assert bench.core.next_deadline() is None
    assert bench.fetch() == []
    assert isinstance(bench.error(bench.ack("M", (10, 19, ACCEPT))), errors.NotLeaderOrFollowerError)


@pytest.mark.rule("PL-523", "PL-631", "PL-402")
def test_retiring_finishes_writes_releases_and_dead_letters() -> None:
    bench = Bench(log=[(0, 9)], settings=GroupConfig(LOCK_MS, dlq_enabled=True))
    bench.fetch()
    ack = bench.ack("M", (0, 4, REJECT))
    release = bench.release("M")
    bench.do(ev.Retire(errors.UnknownServerError("the last session of the group ended")))
    assert bench.core.status is Status.RETIRING
    assert isinstance(bench.error(bench.ack("M", (5, 9, ACCEPT))), errors.UnknownTopicOrPartitionError)
    assert bench.fetch() == []
    bench.persisted()
    bench.persisted()
    assert (bench.error(ack), bench.error(release)) == (None, None)
    assert bench.core.status is Status.RETIRING
    bench.do(ev.DlqDone(bench.dead[0].dead_letter_id))
    assert written(bench.persisted()) == (5, 0, [])
    assert bench.core.overview().status is Status.FENCED


@pytest.mark.rule("PL-631")
def test_retiring_is_bounded() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    op = bench.ack("M", (0, 9, ACCEPT))
    bench.do(ev.Retire(errors.UnknownServerError("no session left")))
    assert bench.core.next_deadline() == bench.now + 15_000
    bench.pass_time(15_000)
    assert isinstance(bench.error(op), errors.NotLeaderOrFollowerError)
    assert bench.core.status is Status.FENCED


@pytest.mark.rule("PL-206", "PL-1207")
def test_one_fetch_at_a_time() -> None:
    bench = Bench(log=[(0, 9)])
    assert bench.lock(1) == fx.ReadLog(1, 0, 500)
    assert bench.lock(2) is None
    assert bench.do(ev.ReleaseFetchLock(2)) == []
    assert bench.core.fetch_lock == 1
    assert not bench.core.can_fetch(bench.settings)
    assert bench.do(ev.ReleaseFetchLock(1)) == [fx.Wake()]
    assert bench.core.fetch_lock is None
    assert bench.core.can_fetch(bench.settings)


def test_a_write_that_finishes_no_record_shows_no_delivery_count() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.ack("M", (0, 9, RELEASE))
    counters = bench.persisted().counters
    assert (counters.n_release, counters.max_dc, counters.sum_dc) == (10, 0, 0)


def test_an_object_that_never_began_has_no_writes_to_finish() -> None:
    failed = SharePartition(1).handle(ev.InitializeFailed(errors.UnknownServerError()), 0)
    assert not one(failed, fx.Fenced).retiring


@pytest.mark.rule("PL-621", "PL-305")
def test_more_spans_than_are_kept_apart_are_all_written() -> None:
    many = LIMITS.unwritten_spans + 300
    bench = Bench(log=[(at, at) for at in range(many)], settings=GroupConfig(LOCK_MS, max_record_locks=2 * many))
    assert len(bench.fetch(max_records=many, batch_size=1)) == many
    bench.ack("M", (many - 1, many - 1, 1))
    bench.pass_time(LOCK_MS)
    bench.failed(errors.CoordinatorNotAvailableError())
    assert written(bench.persisted()) == (0, 0, [(0, many - 1, 0, 1)])
