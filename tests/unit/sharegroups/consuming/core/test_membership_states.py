"""Events that end or interrupt a membership do so in each active state, and data that the coordinator has forgotten is
sent again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition
from sharegroups.consuming.core.membership import Heartbeat, Lookup, Membership, MemberState
from tests.unit.sharegroups.consuming.core.members import beat, state

T, U = b"t" * 16, b"u" * 16
P0, Q0 = TopicIdPartition(T, 0), TopicIdPartition(U, 0)
INTERVAL_MS = 5000
#: By this time the next heartbeat is due in every active state.
DUE_MS = 5001


def joining(random: Callable[[], float] = lambda: 0.5) -> Membership:
    m = Membership("", 300_000, 100, 1000, random)
    m.subscribe(["t"])
    m.poll(0)
    return m


def reconciling() -> Membership:
    m = joining()
    m.succeeded(beat(m, 0), 1, INTERVAL_MS, frozenset({P0}))
    return m


def acknowledging() -> Membership:
    m = reconciling()
    assert m.reconcile({T: "t"})
    return m


def stable() -> Membership:
    m = acknowledging()
    m.succeeded(beat(m, 1), 1, INTERVAL_MS, None)
    return m


ACTIVE = {
    MemberState.JOINING: joining,
    MemberState.RECONCILING: reconciling,
    MemberState.ACKNOWLEDGING: acknowledging,
    MemberState.STABLE: stable,
}


@pytest.fixture(params=list(ACTIVE))
def active(request: pytest.FixtureRequest) -> Membership:
    """A member in each of the active states, without a heartbeat in flight."""
    m = ACTIVE[request.param]()
    assert m.state is request.param
    return m


@pytest.mark.rule("CL-6")
@pytest.mark.parametrize("error", [errors.FencedMemberEpochError(), errors.UnknownMemberIdError()])
def test_a_fenced_member_joins_again_without_a_back_off(active: Membership, error: errors.KafkaError) -> None:
    active.refused(beat(active, DUE_MS), error, DUE_MS)
    assert (active.state, active.epoch, active.assignment) == (MemberState.JOINING, 0, frozenset())
    assert active.unresolved == frozenset()
    assert beat(active, DUE_MS) == Heartbeat(0, None, ("t",))


@pytest.mark.rule("CL-7", "CL-11", "CL-18")
def test_without_polls_an_active_member_leaves_is_silent_and_joins_with_the_next_poll(active: Membership) -> None:
    leave = beat(active, 300_000)
    assert (leave.member_epoch, active.assignment) == (-1, frozenset())
    assert (active.take_poll_timeout(), active.take_poll_timeout()) == (True, False), "reported once"
    active.succeeded(leave, -1, 0, None)
    assert state(active) is MemberState.STALE
    assert active.heartbeat(10_000_000) is None
    assert active.poll(10_000_000)
    assert state(active) is MemberState.JOINING
    assert beat(active, 10_000_000) == Heartbeat(0, None, ("t",))


@pytest.mark.rule("CL-18")
def test_every_poll_restarts_the_poll_timer() -> None:
    m = stable()
    m.poll(50_000)
    m.succeeded(beat(m, 300_000), 1, 60_000, None)
    assert m.next_deadline() == 350_000
    assert (m.heartbeat(349_999), m.take_poll_timeout()) == (None, False)
    assert beat(m, 350_000).member_epoch == -1


@pytest.mark.rule("CL-8", "CL-11")
@pytest.mark.parametrize("outcome", ["answered", "refused", "unanswered", "no coordinator"])
def test_a_leaving_member_says_so_at_once_and_is_done_whatever_the_outcome(active: Membership, outcome: str) -> None:
    active.leave()
    assert (state(active), active.assignment) == (MemberState.PREPARE_LEAVING, frozenset())
    leave = beat(active, 2)
    assert (leave, state(active)) == (Heartbeat(-1, None, None), MemberState.LEAVING)
    match outcome:
        case "answered":
            active.succeeded(leave, -1, 0, None)
        case "refused":
            active.refused(leave, errors.NotCoordinatorError(), 3)
        case "unanswered":
            active.unanswered(leave, None, 3)
        case _:
            active.give_up_leaving()
    assert state(active) is MemberState.UNSUBSCRIBED
    assert (active.fatal, active.denied) == (None, None)
    active.poll(4)
    assert (active.heartbeat(10_000_000), active.next_deadline()) == (None, None), "nothing is subscribed to"


@pytest.mark.rule("CL-9", "CL-11")
def test_a_fatal_error_ends_every_request(active: Membership) -> None:
    error = errors.GroupMaxSizeReachedError()
    active.refused(beat(active, DUE_MS), error, DUE_MS)
    assert (state(active), active.assignment) == (MemberState.FATAL, frozenset())
    active.subscribe(["u"])
    active.poll(DUE_MS)
    assert (active.heartbeat(10_000_000), active.next_deadline()) == (None, None)
    active.leave()
    assert (active.heartbeat(10_000_000), active.next_deadline()) == (None, None)
    assert active.fatal is error


@pytest.mark.rule("CL-4", "CL-3")
def test_a_member_that_has_acknowledged_a_part_goes_on_with_what_is_pending() -> None:
    m = joining()
    m.succeeded(beat(m, 0), 1, INTERVAL_MS, frozenset({P0, Q0}))
    assert m.reconcile({T: "t"})
    assert (m.assignment, m.unresolved) == (frozenset({P0}), frozenset({U}))
    assert state(m) is MemberState.ACKNOWLEDGING
    m.succeeded(beat(m, 1), 1, INTERVAL_MS, None)
    assert state(m) is MemberState.RECONCILING
    assert m.reconcile({T: "t", U: "u"})
    assert (m.assignment, m.unresolved) == (frozenset({P0, Q0}), frozenset())
    m.succeeded(beat(m, 2), 1, INTERVAL_MS, None)
    assert state(m) is MemberState.STABLE


@pytest.mark.rule("CL-2", "CL-5")
def test_only_an_assignment_that_differs_is_reconciled() -> None:
    m = stable()
    m.succeeded(beat(m, DUE_MS), 2, INTERVAL_MS, frozenset({P0}))
    assert (state(m), m.epoch) == (MemberState.STABLE, 2)
    m.succeeded(beat(m, DUE_MS + INTERVAL_MS), 3, INTERVAL_MS, frozenset({Q0}))
    assert (state(m), m.epoch) == (MemberState.RECONCILING, 3)


@pytest.mark.rule("CL-10", "CL-13")
def test_a_success_that_comes_while_the_leave_waits_for_it_changes_nothing() -> None:
    m = stable()
    late = beat(m, DUE_MS)
    m.leave()
    m.succeeded(late, 9, INTERVAL_MS, frozenset({Q0}))
    assert (m.epoch, m.assignment, state(m)) == (1, frozenset(), MemberState.PREPARE_LEAVING)
    assert beat(m, DUE_MS).member_epoch == -1


@pytest.mark.rule("CL-11")
def test_the_timer_restarts_when_the_heartbeat_is_sent_and_not_when_it_is_answered() -> None:
    m = stable()
    m.succeeded(beat(m, 6000), 1, INTERVAL_MS, None)
    assert m.next_deadline() == 6000 + INTERVAL_MS, "whenever the answer came"
    slow = beat(m, 11_000)
    assert m.next_deadline() == 300_000, "one is in flight, so only the poll timer is left"
    m.succeeded(slow, 1, 2000, None)
    assert m.next_deadline() == 13_000, "by the interval of the last success"


@pytest.mark.rule("CL-12")
@pytest.mark.parametrize("failure", ["refused", "unanswered"])
def test_after_any_failed_heartbeat_the_next_one_is_a_full_request_and_a_leave_forgets_too(failure: str) -> None:
    m = Membership("r1", 300_000, 100, 1000, lambda: 0.5)
    m.subscribe(["t"])
    m.poll(0)
    join = beat(m, 0)
    assert join == Heartbeat(0, "r1", ("t",))
    m.succeeded(join, 1, INTERVAL_MS, frozenset())
    assert m.reconcile({})
    m.succeeded(beat(m, 1), 1, INTERVAL_MS, None)
    short = beat(m, DUE_MS)
    assert short == Heartbeat(1, None, None)
    if failure == "refused":
        m.refused(short, errors.CoordinatorLoadInProgressError(), DUE_MS)
    else:
        m.unanswered(short, None, DUE_MS)
    full = beat(m, DUE_MS + 100)
    assert full == Heartbeat(1, "r1", ("t",))
    m.succeeded(full, 1, INTERVAL_MS, None)
    assert beat(m, DUE_MS + 100 + INTERVAL_MS) == Heartbeat(1, None, None)


@pytest.mark.rule("CL-14")
def test_an_unanswered_heartbeat_backs_off_with_jitter_and_causes_another_lookup() -> None:
    for random, delays in ((0.0, (80, 160)), (0.999, (120, 240))):
        m = joining(lambda fixed=random: fixed)  # type: ignore[misc]
        now_ms = 0
        for delay_ms in delays:
            assert m.unanswered(beat(m, now_ms), None, now_ms) is Lookup.AGAIN
            assert m.heartbeat(now_ms + delay_ms - 1) is None
            now_ms += delay_ms
        assert m.heartbeat(now_ms) is not None


@pytest.mark.rule("CL-15")
def test_only_redirects_in_a_row_wait() -> None:
    m = stable()
    assert m.refused(beat(m, DUE_MS), errors.NotCoordinatorError(), DUE_MS) is Lookup.HINT
    m.succeeded(beat(m, DUE_MS), 1, INTERVAL_MS, None)
    later = DUE_MS + INTERVAL_MS
    assert m.refused(beat(m, later), errors.NotCoordinatorError(), later) is Lookup.HINT
    again = beat(m, later)  # the first redirect of a new series: retried at once
    assert m.refused(again, errors.NotCoordinatorError(), later) is Lookup.HINT
    assert m.heartbeat(later + 99) is None
    third = beat(m, later + 100)
    assert m.refused(third, errors.NotCoordinatorError(), later + 100) is Lookup.HINT
    assert m.heartbeat(later + 299) is None, "the back-off doubles"
    assert m.heartbeat(later + 300) is not None


@pytest.mark.rule("CL-15")
def test_another_answer_between_two_redirects_begins_a_new_row() -> None:
    m = stable()
    assert m.refused(beat(m, DUE_MS), errors.NotCoordinatorError(), DUE_MS) is Lookup.HINT
    assert m.refused(beat(m, DUE_MS), errors.CoordinatorLoadInProgressError(), DUE_MS) is Lookup.KEEP
    later = DUE_MS + 100
    assert m.heartbeat(later - 1) is None
    assert m.refused(beat(m, later), errors.NotCoordinatorError(), later) is Lookup.HINT
    assert m.heartbeat(later) is not None, "the first of a new row: at once"


@pytest.mark.rule("CL-16")
def test_an_error_that_no_rule_names_is_fatal_and_a_call_that_cannot_succeed_too() -> None:
    for error in (errors.InvalidPartitionsError(), errors.TopicAlreadyExistsError()):
        m = stable()
        assert m.refused(beat(m, DUE_MS), error, DUE_MS) is Lookup.KEEP
        assert (state(m), m.fatal) == (MemberState.FATAL, error)
        m = stable()
        m.unanswered(beat(m, DUE_MS), error, DUE_MS)
        assert (state(m), m.fatal) == (MemberState.FATAL, error)
