"""A member of a share group as a pure state machine: which heartbeat is due, and the effects of its response."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition
from sharegroups.consuming.core.membership import Heartbeat, Lookup, Membership, MemberState
from tests.unit.sharegroups.consuming.core.members import beat, state

T = b"t" * 16
U = b"u" * 16
P0, Q0 = TopicIdPartition(T, 0), TopicIdPartition(U, 0)


def member(rack: str = "") -> Membership:
    m = Membership(rack, 300_000, 100, 1000, lambda: 0.5)
    m.subscribe(["t"])
    return m


def stable(rack: str = "") -> Membership:
    m = member(rack)
    m.poll(0)
    m.succeeded(beat(m, 0), 1, 5000, frozenset({P0}))
    assert m.reconcile({T: "t"})
    m.succeeded(beat(m, 1), 1, 5000, None)
    assert state(m) is MemberState.STABLE
    return m


@pytest.mark.rule("CL-1", "CL-2", "CL-3", "CL-4", "CL-11", "CL-13")
def test_a_member_joins_reconciles_and_acknowledges_at_once() -> None:
    m = member()
    assert m.heartbeat(0) is None  # only a poll makes it join
    m.poll(0)
    join = beat(m, 0)
    assert join == Heartbeat(0, None, ("t",))
    assert m.heartbeat(10_000) is None  # one heartbeat is in flight
    m.succeeded(join, 3, 5000, frozenset({P0}))
    assert (m.state, m.epoch) == (MemberState.RECONCILING, 3)
    assert m.reconcile({T: "t"})
    assert m.assignment == {P0}
    ack = beat(m, 10_000)
    assert ack == Heartbeat(3, None, None)
    m.succeeded(ack, 3, 5000, None)
    assert state(m) is MemberState.STABLE
    assert m.next_deadline() == 15_000
    assert m.heartbeat(14_999) is None
    assert beat(m, 15_000).member_epoch == 3


@pytest.mark.rule("CL-2")
def test_an_empty_first_assignment_is_reconciled_too() -> None:
    m = member()
    m.poll(0)
    m.succeeded(beat(m, 0), 1, 5000, frozenset())
    assert state(m) is MemberState.RECONCILING
    assert m.reconcile({})
    m.succeeded(beat(m, 0), 1, 5000, None)
    assert state(m) is MemberState.STABLE


@pytest.mark.rule("CL-2")
def test_a_first_answer_without_an_assignment_is_an_empty_one() -> None:
    m = member()
    m.poll(0)
    m.succeeded(beat(m, 0), 1, 5000, None)
    assert state(m) is MemberState.RECONCILING
    assert m.reconcile({})
    assert (state(m), m.assignment) == (MemberState.ACKNOWLEDGING, frozenset())


@pytest.mark.rule("CL-13")
def test_each_success_brings_the_members_epoch() -> None:
    m = stable()
    named, now_ms = [], 0
    for epoch in (4, 9, 9, 12):
        now_ms += 5_001
        request = beat(m, now_ms)
        named.append(request.member_epoch)
        m.succeeded(request, epoch, 5_000, None)
    assert (named, m.epoch) == ([1, 4, 9, 9], 12)


@pytest.mark.rule("CL-11", "OP-19")
def test_the_interval_of_each_answer_says_when_the_next_heartbeat_leaves() -> None:
    m = member()
    m.poll(0)
    m.succeeded(beat(m, 0), 1, 600, frozenset())
    assert m.reconcile({})
    m.succeeded(beat(m, 5), 1, 595, None)
    assert (state(m), m.next_deadline()) == (MemberState.STABLE, 600)
    m.succeeded(beat(m, 600), 2, 5000, frozenset({P0}))
    assert m.reconcile({T: "t"})
    m.succeeded(beat(m, 605), 2, 5000, None)
    assert m.next_deadline() == 5605


@pytest.mark.rule("CL-3", "CL-5")
def test_unresolved_topics_stay_pending_while_the_rest_is_used() -> None:
    m = stable()
    m.succeeded(beat(m, 5001), 2, 5000, frozenset({P0, Q0}))
    assert state(m) is MemberState.RECONCILING
    assert m.unresolved == {U}
    assert not m.reconcile({T: "t"})  # nothing changes until the new topic's name is known
    assert m.assignment == {P0}
    assert m.reconcile({T: "t", U: "u"})
    assert m.assignment == {P0, Q0}
    m.succeeded(beat(m, 5002), 2, 5000, None)
    assert state(m) is MemberState.STABLE


@pytest.mark.rule("CL-6", "CL-16")
@pytest.mark.parametrize(
    "error", [errors.FencedMemberEpochError(), errors.UnknownMemberIdError(), errors.GroupIdNotFoundError()]
)
def test_a_fenced_member_drops_its_assignment_and_joins_at_once(error: errors.KafkaError) -> None:
    m = stable()
    m.refused(beat(m, 5001), error, 5001)
    assert (m.state, m.epoch, m.assignment) == (MemberState.JOINING, 0, frozenset())
    assert beat(m, 5001) == Heartbeat(0, None, ("t",))


@pytest.mark.rule("CL-12")
def test_after_a_failure_the_next_heartbeat_says_everything_again() -> None:
    m = stable(rack="r1")
    request = beat(m, 5001)
    assert request == Heartbeat(1, None, None)
    assert m.unanswered(request, None, 5002) is Lookup.AGAIN
    assert m.heartbeat(5101) is None
    assert beat(m, 5102) == Heartbeat(1, "r1", ("t",))


@pytest.mark.rule("CL-12")
def test_a_changed_subscription_travels_once() -> None:
    m = stable()
    m.subscribe(["t", "u"])
    request = beat(m, 5001)
    assert request.topics == ("t", "u")
    m.succeeded(request, 2, 5000, None)
    assert beat(m, 10_001).topics is None


@pytest.mark.rule("CL-7", "CL-18")
def test_without_polls_the_member_leaves_and_the_next_poll_joins_again() -> None:
    m = stable()
    m.succeeded(beat(m, 5001), 1, 500_000, None)
    assert m.next_deadline() == 300_000
    leave = beat(m, 300_000)
    assert leave.member_epoch == -1
    assert m.assignment == frozenset()
    m.poll(300_001)
    assert m.heartbeat(300_001) is None  # the join waits until the leave has ended
    m.succeeded(leave, -1, 0, None)
    assert beat(m, 300_002) == Heartbeat(0, None, ("t",))


@pytest.mark.rule("CL-7")
def test_a_stale_member_is_silent() -> None:
    m = stable()
    m.succeeded(beat(m, 5001), 1, 500_000, None)
    m.succeeded(beat(m, 300_000), -1, 0, None)
    assert state(m) is MemberState.STALE
    assert m.next_deadline() is None
    assert m.has_left


@pytest.mark.rule("CL-8", "CL-10", "CL-11")
def test_a_leave_waits_for_the_heartbeat_in_flight_until_its_deadline() -> None:
    m = stable()
    late = beat(m, 5001)
    m.leave(deadline_ms=6000)
    assert m.heartbeat(5999) is None
    leave = beat(m, 6000)
    assert leave.member_epoch == -1
    m.succeeded(late, 9, 5000, frozenset({Q0}))
    assert m.epoch == 1
    assert state(m) is MemberState.LEAVING
    m.unanswered(leave, None, 6001)
    assert state(m) is MemberState.UNSUBSCRIBED


@pytest.mark.rule("CL-17")
def test_a_leave_ends_whatever_is_answered() -> None:
    m = stable()
    m.leave()
    assert m.refused(beat(m, 5001), errors.GroupIdNotFoundError(), 5001) is Lookup.KEEP
    assert state(m) is MemberState.UNSUBSCRIBED
    assert (m.fatal, m.denied) == (None, None)


@pytest.mark.rule("CL-15")
def test_the_first_redirect_is_followed_at_once_and_further_ones_wait() -> None:
    m = stable()
    assert m.refused(beat(m, 5001), errors.NotCoordinatorError(), 5001) is Lookup.HINT
    second = beat(m, 5001)
    assert m.refused(second, errors.NotCoordinatorError(), 5002) is Lookup.HINT
    assert m.heartbeat(5101) is None
    assert m.heartbeat(5102) is not None


@pytest.mark.rule("CL-15", "CL-16")
@pytest.mark.parametrize(
    ("error", "lookup"),
    [
        (errors.CoordinatorLoadInProgressError(), Lookup.KEEP),
        (errors.CoordinatorNotAvailableError(), Lookup.AGAIN),
        (errors.UnknownServerError(), Lookup.KEEP),
    ],
)
def test_a_busy_coordinator_is_asked_again_after_a_pause(error: errors.KafkaError, lookup: Lookup) -> None:
    m = member()
    m.poll(0)
    assert m.refused(beat(m, 0), error, 0) is lookup
    assert m.heartbeat(99) is None
    assert m.refused(beat(m, 100), error, 100) is lookup
    assert m.heartbeat(299) is None
    assert m.heartbeat(300) is not None


@pytest.mark.rule("CL-9", "CL-16")
@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequestError(),
        errors.GroupMaxSizeReachedError(),
        errors.UnsupportedVersionError(),
        errors.InvalidConfigError(),
        errors.GroupIdNotFoundError(),
    ],
)
def test_other_errors_of_a_join_are_fatal(error: errors.KafkaError) -> None:
    m = member()
    m.poll(0)
    m.refused(beat(m, 0), error, 0)
    assert state(m) is MemberState.FATAL
    assert m.fatal is error
    m.poll(1)
    assert m.next_deadline() is None


@pytest.mark.rule("CL-17", "CL-143")
@pytest.mark.parametrize("error", [errors.TopicAuthorizationFailedError("t"), errors.GroupAuthorizationFailedError()])
def test_a_member_without_a_right_keeps_its_partitions_and_tries_again_with_a_back_off(
    error: errors.KafkaError,
) -> None:
    m = stable()
    now_ms, waits = 5001, []
    for _ in range(6):
        assert m.refused(beat(m, now_ms), error, now_ms) is Lookup.KEEP
        assert (m.denied, m.fatal, m.assignment) == (error, None, frozenset({P0}))
        due = m.next_deadline()
        assert due is not None
        waits.append(due - now_ms)
        now_ms = due
    assert waits == [100, 200, 400, 800, 1000, 1000]
    m.succeeded(beat(m, now_ms), 1, 5000, None)
    assert (m.denied, m.next_deadline()) == (None, now_ms + 5000)


@pytest.mark.rule("CL-143")
def test_a_member_that_never_had_the_right_keeps_trying_to_join_and_leaves_at_once() -> None:
    m = member()
    m.poll(0)
    for now_ms in (0, 100, 300, 700):
        m.refused(beat(m, now_ms), errors.GroupAuthorizationFailedError(), now_ms)
    m.leave()
    assert beat(m, 701).member_epoch == -1, "it does not wait for the back-off"
    m = member()
    m.poll(0)
    m.refused(beat(m, 0), errors.GroupAuthorizationFailedError(), 0)
    m.succeeded(beat(m, 100), 1, 5000, frozenset({P0}))
    assert (state(m), m.denied) == (MemberState.RECONCILING, None)


@pytest.mark.rule("CL-143")
def test_a_member_without_a_right_waits_a_tenth_of_a_second_whatever_its_settings() -> None:
    m = Membership("", 300_000, 1, 1, lambda: 0.5)
    m.subscribe(["t"])
    m.poll(0)
    m.refused(beat(m, 0), errors.GroupAuthorizationFailedError(), 0)
    assert m.next_deadline() == 100


@pytest.mark.rule("CL-143")
def test_a_member_that_is_removed_has_passed_the_check_of_its_rights() -> None:
    m = stable()
    m.refused(beat(m, 5001), errors.GroupAuthorizationFailedError(), 5001)
    m.refused(beat(m, 5101), errors.UnknownMemberIdError(), 5101)
    assert (state(m), m.denied) == (MemberState.JOINING, None)


@pytest.mark.rule("CL-13")
def test_a_negative_epoch_while_not_leaving_is_ignored() -> None:
    m = stable()
    m.succeeded(beat(m, 5001), -1, 5000, frozenset())
    assert (m.epoch, m.assignment) == (1, frozenset({P0}))


@pytest.mark.rule("CL-8")
def test_a_leave_without_a_coordinator_ends() -> None:
    m = stable()
    m.leave()
    m.give_up_leaving()
    assert state(m) is MemberState.UNSUBSCRIBED


@pytest.mark.rule("CL-1", "CL-7", "CL-18")
def test_a_poll_says_whether_it_brings_a_heartbeat_closer() -> None:
    m = stable()
    assert not m.poll(2)  # the next heartbeat is due when it was due before
    m.subscribe(["t", "u"])
    assert m.poll(3)  # a new subscription is sent at once
    m.leave()
    assert not m.poll(4)  # there is no subscription to join for
    m.subscribe(["t"])
    assert m.poll(5)  # it joins again after the leave
    assert member().poll(0)


@pytest.mark.rule("CL-14")
def test_a_back_off_ends_and_starts_over_when_the_cluster_can_be_reached_again() -> None:
    m = stable()
    for now_ms in (5001, 5101, 5301):
        m.unanswered(beat(m, now_ms), None, now_ms)
    assert m.next_deadline() == 5701
    m.hurry()
    again = beat(m, 5350)
    assert m.heartbeat(5350) is None, "one in flight"
    m.unanswered(again, None, 5350)
    assert m.next_deadline() == 5450
    m.succeeded(beat(m, 5450), 1, 5000, None)
    m.hurry()
    assert m.heartbeat(5460) is None, "nothing waits for a back-off"


def test_a_stale_member_that_leaves_is_out_at_once_and_one_that_failed_stays_failed() -> None:
    m = stable()
    m.succeeded(beat(m, 5001), 1, 500_000, None)
    m.succeeded(beat(m, 300_000), -1, 0, None)
    m.leave()
    assert state(m) is MemberState.UNSUBSCRIBED
    m = stable()
    m.unanswered(beat(m, 5001), errors.InvalidRequestError("no"), 5002)
    assert state(m) is MemberState.FATAL
    m.leave()
    assert state(m) is MemberState.FATAL


@pytest.mark.rule("CL-111", "CL-9")
def test_a_member_that_gives_up_leaves_and_is_failed_for_good() -> None:
    why = errors.UnsupportedCompressionTypeError("no zstd")
    m = stable()
    m.give_up(why)
    assert m.assignment == frozenset()
    assert not m.poll(100)
    leave = beat(m, 100)
    assert leave.member_epoch == -1
    assert not m.poll(150), "it does not want to join once it has left"
    m.succeeded(leave, -1, 5000, None)
    assert state(m) is MemberState.FATAL
    assert m.has_left
    assert m.fatal is why
    m.give_up(errors.UnsupportedCompressionTypeError("another"))
    assert m.fatal is why
    assert m.heartbeat(1_000_000) is None


@pytest.mark.rule("CL-111")
def test_a_member_that_has_left_already_fails_without_a_heartbeat() -> None:
    why = errors.UnsupportedCompressionTypeError("no zstd")
    m = stable()
    m.leave()
    m.succeeded(beat(m, 0), -1, 5000, None)
    m.give_up(why)
    m.subscribe(["t"])
    assert not m.poll(0)
    assert m.heartbeat(0) is None
    assert m.fatal is why
    back = stable()
    back.leave()
    leave = beat(back, 0)
    back.subscribe(["t"])
    assert back.poll(0), "it wants to join when it has left"
    back.give_up(why)
    back.succeeded(leave, -1, 5000, None)
    assert state(back) is MemberState.FATAL
    late = stable()
    assert late.heartbeat(300_000) is not None, "the application did not poll"
    late.give_up(why)
    assert not late.poll(300_000)
    assert late.fatal is why
