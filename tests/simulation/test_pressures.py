"""A run's pressures do what their descriptions say in clusters without faults, and no rule is broken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from kip932.ids import ACK_RENEW, EPOCH_LEAVE
from partition_leader.share_partition import host
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.limits import LIMITS, Limits
from tests.simulation import history as h
from tests.simulation.checkers.causes import CHANGES
from tests.simulation.checkers.reading import shortened
from tests.simulation.connection_events import MoveAsked, MoveRefused, PrincipalKnown, RightsSeen
from tests.simulation.coordinator_events import GroupDecided
from tests.simulation.delay_events import ReleaseAsked
from tests.simulation.faults.changes import AmidChange
from tests.simulation.leader_events import Consumed, Locked, StartResolved
from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan, Step
from tests.simulation.shape import AGE_FLAG, AGES, PRESSURES, RIGHTS, RIGHTS_FLAGS
from tests.simulation.simulate import simulate
from tests.simulation.transaction_events import TransactionAborted, TransactionEnded

SEEDS = (12, 14, 16, 30, 36)  # each has an administrator; the last two, groups that begin within a log


@cache
def played(*pressures: str, **flags: str) -> tuple[Outcome, ...]:
    """Play some seeds without faults under these pressures; check that no rule is broken."""
    found = []
    for seed in SEEDS[:1] if "bulk" in pressures else SEEDS:
        plan = Plan.draw(seed)
        shape = replace(plan.shape, pressures=pressures, flags={**plan.shape.flags, **dict(flags)})
        found.append(simulate(seed, replace(plan, shape=shape, steps=())))
    assert [str(violation) for outcome in found for violation in outcome.violations] == []
    return tuple(found)


def test_retention_moves_logs_on_that_were_not_cut() -> None:
    for outcome in played("retention"):
        cut = {e.detail.partition("/")[0] for e in outcome.history.of(h.Administered) if e.call == "DeleteRecords"}
        short = shortened(outcome.history) - cut
        if any(log.log_start_offset > 0 for (topic_id, _), log in outcome.final.logs.items() if topic_id in short):
            return
    pytest.fail("no log began later")


def test_leaders_sweep_at_small_limits_and_at_the_usual_ones_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Limits] = []

    def noted(window: Window, start_offset: int = 0, limits: Limits = LIMITS) -> None:
        made.append(limits)
        init(window, start_offset, limits)

    init = Window.__init__
    monkeypatch.setattr(Window, "__init__", noted)
    played("small limits")
    assert made
    assert LIMITS not in made
    assert vars(host)["LIMITS"] is LIMITS


@pytest.mark.rule("CM-160")
def test_logs_follow_the_groups_where_topics_keep_only_what_is_needed() -> None:
    outcomes = played("consumed", "changes")
    moved = [event for outcome in outcomes for event in outcome.history.of(Consumed)]
    assert any(len(event.now) > 1 for event in moved)
    assert any(start > event.log_start_offset for event in moved for _, _, start in event.now)


@pytest.mark.rule("INV-21")
def test_records_wait_for_delays_of_their_own_and_for_back_offs_and_in_the_store() -> None:
    outcomes = played("delays")
    asked = [event for outcome in outcomes for event in outcome.history.of(ReleaseAsked)]
    given = {delay for event in asked for *_, delays in event.batches for delay in delays}
    assert {-1, 0} < given
    assert any(len(set(delays)) > 1 for event in asked for *_, delays in event.batches), "several in one batch"
    assert any(event.backoff.initial_ms for event in asked)
    written = [e for outcome in outcomes for e in outcome.history.of(h.StateAnswered) if e.call == "Write"]
    assert any(instant for event in written for *_, instant in event.batches)
    renewed = [e for outcome in outcomes for e in outcome.history.of(h.SessionAsked) if e.max_wait_ms == 0 and e.acks]
    assert any(ACK_RENEW in types for event in renewed for _, _, (_, _, types) in event.acks), "on a fetch"


def test_groups_begin_within_what_is_there_by_duration() -> None:
    starts = [e for outcome in played("by_duration") for e in outcome.history.of(StartResolved)]
    assert any(0 < start.start_offset < start.high_watermark for start in starts)


def test_renewals_are_refused_where_they_are_switched_off() -> None:
    def renewed(*pressures: str) -> set[str]:
        settled = [e for outcome in played(*pressures) for e in outcome.history.of(h.Settled)]
        return {event.error for event in settled if event.type == ACK_RENEW}

    assert "" in renewed()
    assert renewed("no renewals")
    assert "" not in renewed("no renewals")


def test_members_that_take_too_long_leave_and_come_back() -> None:
    def left(*pressures: str) -> int:
        beats = [e for outcome in played(*pressures) for e in outcome.history.of(h.HeartbeatAnswered)]
        return sum(event.sent_epoch == EPOCH_LEAVE for event in beats)

    assert left("max poll") > left()


def test_intervals_change_while_members_live() -> None:
    seen = [e for outcome in played("intervals") for e in outcome.history.of(h.GroupSeen)]
    assert len({event.session_timeout_ms for event in seen}) > 2


def test_assignments_wait_for_their_interval() -> None:
    seen = [e for outcome in played("assignment") for e in outcome.history.of(h.GroupSeen)]
    assert any(event.members and event.assignment_epoch < event.group_epoch for event in seen)


def test_small_fetches_bring_fewer_batches() -> None:
    def mean(*pressures: str) -> float:
        found = [e for outcome in played(*pressures) for e in outcome.history.of(h.Acquired)]
        return sum(len(event.data) for event in found) / len(found)

    assert mean("bytes") < mean()


def test_long_windows_pass_the_thresholds_of_locks_and_batches() -> None:
    (outcome,) = played("bulk")
    assert max(event.in_flight for event in outcome.history.of(Locked)) > 256
    writes = [event for event in outcome.history.of(h.StateAnswered) if event.call == "Write"]
    assert max(len(event.batches) for event in writes) > 64


def test_groups_are_changed_and_read_again_what_they_are_set_back_to() -> None:
    done = Counter((e.call, e.error) for outcome in played("changes") for e in outcome.history.of(h.Administered))
    for call in CHANGES:
        assert done[call, ""] > 0, call
        assert done[call, "NON_EMPTY_GROUP"] > 2, call
    first = [e for outcome in played("changes") for e in outcome.history.of(h.Delivered) if e.delivery_count == 1]
    places = Counter((event.group_id, event.place) for event in first)
    assert any(count > 1 for (group_id, _), count in places.items() if group_id == "c0")
    assert all(count == 1 for (group_id, _), count in places.items() if not group_id.startswith("c"))


def test_a_group_is_made_again_and_listed() -> None:
    for outcome in played("changes"):
        decided = [event for event in outcome.history.of(GroupDecided) if event.group_id.startswith("c")]
        gone = {event.group_id for event in decided if not event.made}
        assert any(event.group_id in gone for event in decided[len(decided) // 2 :] if event.made)
    was_listed = [event.there for outcome in played("changes") for event in outcome.history.of(h.GroupListed)]
    assert set(was_listed) == {True, False}


def test_a_deletion_is_struck_in_its_midst_and_ends_all_the_same() -> None:
    plan = Plan.draw(SEEDS[0])
    shape = replace(plan.shape, pressures=("changes",), replicas=0)
    amid = AmidChange(deletion=True, killed=True, other=-1, delay_ms=1, ms=500)
    steps = tuple(Step(at_ms, amid) for at_ms in (500, 3000, 5000))
    outcome = simulate(SEEDS[0], replace(plan, shape=shape, steps=steps))
    assert [str(violation) for violation in outcome.violations] == []
    assert "killed" in {event.what for event in outcome.history.of(h.ProcessChanged) if event.at_ms < plan.work_ms}


def test_a_plan_draws_each_of_them_and_full_groups_now_and_then() -> None:
    shapes = [Plan.draw(seed).shape for seed in range(300)]
    for word in PRESSURES:
        assert 0 < sum(word in shape.pressures for shape in shapes) < 120  # letters: in a third
    assert 0 < sum("group.share.max.size" in shape.flags for shape in shapes) < 100


@pytest.mark.rule("INV-18")
def test_letters_arrive_though_their_topic_comes_late_and_closes() -> None:
    outcomes = played("letters")
    assert any(outcome.final.letters for outcome in outcomes)
    asked = [e.detail for outcome in outcomes for e in outcome.history.of(h.Administered) if e.target == h.LETTER_TOPIC]
    assert "errors.deadletterqueue.group.enable=false" in asked


def test_a_full_group_refuses_members_and_is_emptied_in_the_end() -> None:
    outcomes = played("max poll", **{"group.share.max.size": "1"})
    failures = [e.error for outcome in outcomes for e in outcome.history.of(h.ClientFailed)]
    assert "GROUP_MAX_SIZE_REACHED" in failures


def test_transactions_commit_abort_die_and_outlast_their_time_out() -> None:
    outcomes = played("transactions")
    ended = Counter(event.outcome for outcome in outcomes for event in outcome.history.of(TransactionEnded))
    assert min(ended["committed"], ended["aborted"], ended["UNKNOWN"]) > 0
    assert any(outcome.final.hidden for outcome in outcomes)
    assert any(event for outcome in outcomes for event in outcome.history.of(TransactionAborted)), "an operator did"
    produced = {event.value for outcome in outcomes for event in outcome.history.of(h.Produced)}
    delivered = {event.value for outcome in outcomes for event in outcome.history.of(h.Delivered)}
    assert any(value.startswith(b"x") for value in produced & delivered)


@pytest.mark.rule("INV-22", "CM-194", "PL-533", "PL-534", "CL-144")
def test_sessions_producers_and_nodes_move_off_old_connections_and_clients_do_not_notice() -> None:
    outcomes = played(AGES, **{AGE_FLAG: "1000"})
    asked = Counter(event.method for outcome in outcomes for event in outcome.history.of(MoveAsked))
    assert min(asked["ShareStream"], asked["ProduceStream"], asked["StateStream"]) > 0
    assert any(event for outcome in outcomes for event in outcome.history.of(MoveRefused)), "and some moves are refused"
    streams = Counter(
        (seed, process, session)
        for seed, process, session, _ in {
            (outcome.seed, event.process, event.accepted, event.connection)
            for outcome in outcomes
            for event in outcome.history.of(h.SessionAsked)
            if event.accepted and event.connection
        }
    )
    assert max(streams.values()) > 3, "one session, over one stream after another"
    lost = {"NETWORK_EXCEPTION", "UNAVAILABLE", "SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"}
    seen = {
        (event.process, event.error)
        for outcome in outcomes
        for event in outcome.history.of(h.ClientFailed, h.Settled, h.ProduceFailed)
    }
    assert [each for each in seen if each[1] in lost and not each[0].startswith("rogue")] == []


@pytest.mark.rule("INV-23", "PL-531")
def test_rights_are_taken_from_members_that_hold_records_and_wait_and_given_back() -> None:
    outcomes = played(RIGHTS, **RIGHTS_FLAGS)
    held = given_again = 0
    for outcome in outcomes:
        guests = {event.member_id for event in outcome.history.of(PrincipalKnown)}
        taken, open_locks = False, False
        for event in outcome.history.of(RightsSeen, Locked, h.Acquired):
            if isinstance(event, RightsSeen):
                taken = taken or (open_locks and not (event.groups and event.topics))
                held += open_locks and not (event.groups and event.topics)
            elif event.member_id in guests:
                open_locks = True
                given_again += taken and isinstance(event, h.Acquired)
    assert held
    assert given_again, "and records come again"
    errors = {e.error for outcome in outcomes for e in outcome.history.of(h.ClientFailed)}
    assert errors & {"GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"}, errors
