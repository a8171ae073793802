"""Tests the checkers of stored state and of what happens to records: bad histories are found, and the most similar good
ones pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kip932.ids import (
    ACK_ACCEPT,
    ACK_GAP,
    ACK_REJECT,
    ACK_RELEASE,
    ACK_RENEW,
    STATE_ACKNOWLEDGED,
    STATE_ARCHIVED,
    STATE_AVAILABLE,
)
from tests.simulation.checkers.durability import ConfirmedTruthfully, DurableBeforeConfirmed
from tests.simulation.checkers.fencing import Fencing
from tests.simulation.checkers.passing import NothingSkipped
from tests.simulation.checkers.replay import LogEqualsState, LogsOutlive, misshapen
from tests.simulation.checkers.start_offset import StartOffset
from tests.simulation.delay_events import TakeBackAsked
from tests.simulation.final import LogEnd
from tests.simulation.history import Administered, LagSeen, Settled, StateSeen
from tests.simulation.made import SHARE, TOPIC, Made, found

INVALID_RECORD_STATE = 121
COORDINATOR_NOT_AVAILABLE = 15
FENCED = 74


def accepted(member: str = "A", offset: int = 0) -> Made:
    """Return a record that was read from a state, delivered and accepted; nothing is written yet."""
    return Made().produced(offset).reads(0).at(10).acquires(member, offset).at(20).settles(member, offset)


class TestNothingSkipped:
    def test_a_record_that_its_holder_accepted_may_be_passed(self) -> None:
        assert not found(NothingSkipped(), accepted().writes(1))
        assert not found(NothingSkipped(), accepted().writes(0, (0, 0, STATE_ACKNOWLEDGED, 1)))

    @pytest.mark.rule("INV-1")
    def test_one_that_no_member_was_given_may_not(self) -> None:
        assert found(NothingSkipped(), accepted().produced(1).writes(2)) == ["INV-1"]
        made = accepted().produced(5).writes(1, (5, 5, STATE_ARCHIVED, 1))
        assert found(NothingSkipped(), made) == ["INV-1"]

    @pytest.mark.rule("INV-9")
    def test_one_that_is_held_may_not(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0).writes(1)
        assert found(NothingSkipped(), made) == ["INV-9"]

    def test_an_answer_that_was_lost_is_a_reason_as_well(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0)
        made.asks("A", (0, 0, (ACK_REJECT,)))
        assert not found(NothingSkipped(), made.writes(1))

    @pytest.mark.rule("INV-9")
    def test_a_request_that_was_refused_for_certain_is_none(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0).settles("A", 0, code=INVALID_RECORD_STATE)
        assert found(NothingSkipped(), made.writes(1)) == ["INV-9"]
        made = Made().produced(0).reads(0).acquires("A", 0)
        made.asks("A", (0, 0, (ACK_ACCEPT,)), accepted=0, code=123)
        assert found(NothingSkipped(), made.writes(1)) == ["INV-9"]

    def test_a_request_of_unknown_outcome_may_have_been_applied(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0).settles("A", 0, code=COORDINATOR_NOT_AVAILABLE)
        assert not found(NothingSkipped(), made.writes(1))

    @pytest.mark.rule("INV-5")
    def test_it_may_not_be_applied_once_another_member_holds_the_record(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0).settles("A", 0, code=COORDINATOR_NOT_AVAILABLE)
        made.at(50).successor().reads(0).acquires("B", 0)
        assert found(NothingSkipped(), made.writes(1)) == ["INV-5"]

    @pytest.mark.rule("INV-5")
    def test_nor_may_it_be_an_earlier_delivery_that_is_finished_whatever_the_new_holder_asks(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0).settles("A", 0, code=COORDINATOR_NOT_AVAILABLE)
        made.at(50).acquires("B", 0, count=2)
        made.asks("B", (0, 0, (ACK_ACCEPT,)))
        assert found(NothingSkipped(), made.writes(0, (0, 0, STATE_ACKNOWLEDGED, 1))) == ["INV-5"]

    def test_or_the_new_holder_settled_it_too(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0).settles("A", 0, code=COORDINATOR_NOT_AVAILABLE)
        made.at(50).successor().reads(0).acquires("B", 0).settles("B", 0)
        assert not found(NothingSkipped(), made.writes(1))

    def test_a_write_that_was_answered_late_belongs_to_its_own_leader(self) -> None:
        made = accepted().successor().reads(0).locks("B", 0)
        assert not found(NothingSkipped(), made.writes(1, leader_epoch=7, generation=1))

    def test_what_a_paused_leader_locks_counts_for_nothing_against_its_successor(self) -> None:
        made = Made().produced(0).reads(0).successor().reads(0).acquires("B", 0).settles("B", 0)
        made.process, made.leader_epoch, made.object_id = "a", 7, 1
        made.locks("A", 0)
        made.successor()
        assert not found(NothingSkipped(), made.writes(1))

    def test_the_delivery_limit_is_a_reason_also_when_it_was_lowered_meanwhile(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0, count=4)
        assert found(NothingSkipped(), made.writes(1)) == ["INV-9"]
        made = Made().produced(0).reads(0).acquires("A", 0, count=5)
        assert not found(NothingSkipped(), made.writes(1))
        made = Made().produced(0).reads(0).acquires("A", 0, count=3).limits(3)
        assert not found(NothingSkipped(), made.writes(1))
        made = Made().produced(0).reads(0).acquires("A", 0, count=3).at(50).writes(1).at(60)
        made.add(Administered, "IncrementalAlterConfigs", "g", "share.delivery.count.limit=3", "UNKNOWN", 40)
        assert not found(NothingSkipped(), made)

    @pytest.mark.rule("INV-5", "PL-941")
    def test_a_delivery_that_was_taken_back_does_not_count_towards_the_limit(self) -> None:
        def archived(count: int, limit: int, back: str = "A") -> Made:
            made = Made().produced(0).reads(0).acquires("A", 0, count=3).limits(limit)
            made.add(TakeBackAsked, 1, made.share, back, made.object_id, ((0, 0),))
            return made.writes(0, (0, 0, STATE_ARCHIVED, count))

        assert not found(NothingSkipped(), archived(2, limit=2))
        assert not found(NothingSkipped(), archived(3, limit=3))  # the eleventh time in a row: it was not taken back
        assert found(NothingSkipped(), archived(2, limit=3)) == ["INV-9"]
        assert found(NothingSkipped(), archived(1, limit=1)) == ["INV-5"]
        assert found(NothingSkipped(), archived(2, limit=2, back="B")) == ["INV-5"]

    def test_what_has_left_the_log_may_be_passed(self) -> None:
        made = Made().produced(0, 1).reads(0).writes(2)
        made.final = replace(made.final, logs={(TOPIC, 0): LogEnd(2, 2)})
        assert not found(NothingSkipped(), made)
        made = Made().produced(0, 1).reads(0)
        made.add(Administered, "DeleteRecords", "t", f"{TOPIC}/0 2", "", 0)
        assert not found(NothingSkipped(), made.writes(2))

    def test_a_gap_is_no_reason_for_a_record_that_no_application_saw(self) -> None:
        made = Made().produced(0).reads(0).acquires("A", 0).settles("A", 0, kind=ACK_GAP)
        assert found(NothingSkipped(), made.writes(1)) == ["INV-9"]
        made = Made().produced(0).reads(0).acquires("A", 0).delivered("A", 0).settles("A", 0, kind=ACK_GAP)
        assert not found(NothingSkipped(), made.writes(1))

    def test_offsets_without_a_record_may_be_passed(self) -> None:
        assert not found(NothingSkipped(), accepted().writes(5))

    def test_a_reset_begins_again(self) -> None:
        made = accepted().writes(1)
        made.state_epoch = 3
        made.answered("Initialize", 0).produced(1)
        assert not found(NothingSkipped(), made.reads(0))
        assert found(NothingSkipped(), made.writes(1)) == ["INV-1"]

    def test_once_a_topic_may_be_deleted_nothing_is_promised(self) -> None:
        made = Made().produced(0).reads(0).at(50).writes(1)
        made.add(Administered, "DeleteTopics", "t", TOPIC, "REQUEST_TIMED_OUT", 51)
        assert found(NothingSkipped(), made) == ["INV-1"]
        made = Made().produced(0).reads(0).at(50).writes(1)
        made.add(Administered, "DeleteTopics", "t", TOPIC, "REQUEST_TIMED_OUT", 49)
        assert not found(NothingSkipped(), made)

    def test_where_a_group_begins_late_nothing_was_skipped(self) -> None:
        made = Made().produced(0, 1, 2).answered("Initialize", -1).reads(-1).writes(2)
        assert not found(NothingSkipped(), made)

    @pytest.mark.rule("INV-1")
    def test_the_state_at_the_end_is_judged_like_all_others(self) -> None:
        made = accepted().writes(1).produced(1).rests(2)
        assert found(NothingSkipped(), made) == ["INV-1"]


class TestStartOffset:
    pytestmark = pytest.mark.rule("INV-9")

    def test_a_stored_start_offset_that_steps_back_is_found(self) -> None:
        assert found(StartOffset(), Made().reads(5).reads(4)) == ["INV-9"]
        made = Made().reads(5)
        made.history.add(made.state(4))
        assert found(StartOffset(), made) == ["INV-9"]

    def test_an_answer_that_was_overtaken_is_not(self) -> None:
        assert not found(StartOffset(), Made().reads(5).reads(4, asked=0))

    def test_in_another_state_epoch_it_may(self) -> None:
        made = Made().reads(5)
        made.state_epoch = 3
        assert not found(StartOffset(), made.reads(0))

    def test_an_object_never_steps_back_but_its_successor_may_know_less(self) -> None:
        made = Made().at(1).acquires("A", 5, start_offset=5).at(2).acquires("A", 6, start_offset=4)
        assert found(StartOffset(), made) == ["INV-9"]
        made = Made().at(1).acquires("A", 5, start_offset=5).at(2).successor().acquires("A", 6, start_offset=4)
        assert not found(StartOffset(), made)

    def test_an_answer_that_left_late_reports_an_older_start(self) -> None:
        made = Made().at(1).acquires("A", 5, start_offset=5, locked_ms=1)
        assert not found(StartOffset(), made.acquires("A", 6, start_offset=4, locked_ms=0))

    def test_a_start_outside_of_the_log_is_found(self) -> None:
        assert found(StartOffset(), Made().acquires("A", 5, start_offset=3, log_start_offset=4)) == ["INV-9"]
        assert found(StartOffset(), Made().rests(3, end=2)) == ["INV-9"]

    def test_what_one_client_reads_moves_forward_but_for_resets(self) -> None:
        made = Made()
        made.add(LagSeen, SHARE, 5, 0)
        made.add(LagSeen, SHARE, -1, -1)
        assert not found(StartOffset(), made)
        made.add(LagSeen, SHARE, 4, 0)
        assert found(StartOffset(), made) == ["INV-9"]
        made.answered("Initialize", 0).answered("Initialize", 0, state_epoch=3)
        assert not found(StartOffset(), made)


class TestDurableBeforeConfirmed:
    pytestmark = pytest.mark.rule("INV-11")

    def settled(self, kind: int = ACK_ACCEPT) -> Made:
        made = Made().acquires("A", 0, 1)
        request = made.asks("A", (0, 1, (kind,)))
        return made.writes(0, (0, 1, STATE_AVAILABLE if kind == ACK_RELEASE else STATE_ACKNOWLEDGED, 1)).does(request)

    @pytest.mark.parametrize("kind", [ACK_ACCEPT, ACK_REJECT, ACK_RELEASE])
    def test_an_answer_after_the_write_is_right(self, kind: int) -> None:
        assert not found(DurableBeforeConfirmed(), self.settled(kind).answers(2))

    @pytest.mark.parametrize("kind", [ACK_ACCEPT, ACK_RELEASE])
    def test_an_answer_without_a_write_is_found(self, kind: int) -> None:
        assert found(DurableBeforeConfirmed(), Made().acquires("A", 0).settles("A", 0, kind=kind)) == ["INV-11"]

    def test_a_write_that_failed_backs_nothing(self) -> None:
        made = Made().acquires("A", 0).writes(1, code=COORDINATOR_NOT_AVAILABLE).settles("A", 0)
        assert found(DurableBeforeConfirmed(), made) == ["INV-11"]

    def test_an_accept_is_not_backed_by_a_write_of_something_else(self) -> None:
        made = Made().acquires("A", 0).writes(0, (0, 0, STATE_AVAILABLE, 1)).settles("A", 0)
        assert found(DurableBeforeConfirmed(), made) == ["INV-11"]

    def test_an_answer_may_leave_behind_the_deletion_of_what_was_written_for_it(self) -> None:
        made = self.settled()
        assert not found(DurableBeforeConfirmed(), made.at(100).answered("Delete").answers(2))

    def test_renewals_and_no_ops_need_no_write(self) -> None:
        assert not found(DurableBeforeConfirmed(), Made().acquires("A", 0).settles("A", 0, kind=ACK_RENEW))
        assert not found(DurableBeforeConfirmed(), Made().settles("A", 0, start_offset=1))
        assert not found(DurableBeforeConfirmed(), Made().settles("A", 0, persisted=False))

    def test_what_was_confirmed_is_there_at_the_end(self) -> None:
        made = self.settled().answers(2)
        assert not found(DurableBeforeConfirmed(), made.rests(2))
        assert not found(DurableBeforeConfirmed(), made.rests(0, (0, 1, STATE_ACKNOWLEDGED, 1), end=2))
        assert set(found(DurableBeforeConfirmed(), made.rests(1, end=2))) == {"INV-11"}

    def test_a_state_that_vanished_is_found_unless_it_was_deleted(self) -> None:
        made = self.settled().answers(2).rests(2)
        made.final = replace(made.final, replayed={Made().share._replace(partition=1): made.state(0)})
        assert found(DurableBeforeConfirmed(), made) == ["INV-11"]
        assert not found(DurableBeforeConfirmed(), made.answered("Delete"))

    def test_a_state_that_was_reset_says_nothing_of_what_was_before(self) -> None:
        made = self.settled().answers(2)
        made.state_epoch = 3
        assert not found(DurableBeforeConfirmed(), made.rests(0, end=2))


class TestConfirmedTruthfully:
    """Covers the part of INV-11 by which an application learns no more than its leader reported, not that this was
    durable."""

    pytestmark = pytest.mark.rule("INV-11")

    def test_an_application_learns_what_a_leader_answered(self) -> None:
        made = accepted()
        made.add(Settled, "A", "g", made.place(0), ACK_ACCEPT, "")
        assert not found(ConfirmedTruthfully(), made)

    @pytest.mark.parametrize("code", [None, COORDINATOR_NOT_AVAILABLE])
    def test_success_that_no_leader_reported_is_found(self, code: int | None) -> None:
        made = Made().acquires("A", 0)
        if code is not None:
            made.settles("A", 0, code=code)
        made.add(Settled, "A", "g", made.place(0), ACK_ACCEPT, "")
        assert found(ConfirmedTruthfully(), made) == ["INV-11"]

    def test_an_error_may_be_reported_of_anything(self) -> None:
        made = accepted()
        made.add(Settled, "A", "g", made.place(0), ACK_ACCEPT, "UNKNOWN")
        assert not found(ConfirmedTruthfully(), made)


class TestFencing:
    pytestmark = pytest.mark.rule("INV-12")

    def test_a_write_with_a_lower_epoch_after_a_read_is_found(self) -> None:
        assert found(Fencing(), Made().reads(0).writes(0, leader_epoch=6)) == ["INV-12"]

    def test_one_that_was_asked_before_may_be_answered_after_it(self) -> None:
        assert not found(Fencing(), Made().reads(0).writes(0, leader_epoch=6, asked=0))

    def test_a_lower_generation_is_as_bad(self) -> None:
        assert found(Fencing(), Made().reads(0, generation=2).writes(0, generation=1)) == ["INV-12"]
        made = Made().reads(0, generation=2).writes(0, generation=2).writes(0, generation=3)
        assert not found(Fencing(), made)

    def test_one_that_was_fenced_is_as_it_must_be(self) -> None:
        assert not found(Fencing(), Made().reads(0).writes(0, leader_epoch=6, code=FENCED))

    def test_a_lower_state_epoch_after_an_initialize_is_found(self) -> None:
        made = Made().answered("Initialize", 0, state_epoch=3).writes(0, state_epoch=2)
        assert found(Fencing(), made) == ["INV-12"]
        assert not found(Fencing(), Made().answered("Initialize", 0, state_epoch=3).writes(0, state_epoch=3))

    def test_a_deleted_state_begins_again(self) -> None:
        made = Made().reads(0).answered("Delete").answered("Initialize", 0, state_epoch=1)
        assert not found(Fencing(), made.reads(0, leader_epoch=6, state_epoch=1))

    def test_an_old_leader_that_confirms_is_found(self) -> None:
        made = Made().at(5).acquires("A", 0).reads(0, leader_epoch=8).at(10).settles("A", 0)
        assert found(Fencing(), made) == ["INV-12"]

    def test_one_that_was_asked_before_the_other_had_read_is_not(self) -> None:
        made = Made().at(5).acquires("A", 0)
        request = made.asks("A", (0, 0, (ACK_ACCEPT,)))
        assert not found(Fencing(), made.at(10).reads(0, leader_epoch=8).does(request).answers(request))

    def test_an_old_leader_that_gives_out_is_found_by_when_it_locked(self) -> None:
        made = Made().at(5).reads(0, leader_epoch=8).at(10)
        assert found(Fencing(), made.acquires("A", 0)) == ["INV-12"]
        made = Made().at(5).reads(0, leader_epoch=8).at(10).acquires("A", 0, locked_ms=4)
        assert not found(Fencing(), made)


class TestLogEqualsState:
    pytestmark = pytest.mark.rule("INV-13")

    def test_the_same_three_times_is_right(self) -> None:
        assert not found(LogEqualsState(), Made().rests(3, (4, 5, STATE_ACKNOWLEDGED, 1), end=9, finished=2))

    def test_any_difference_is_found(self) -> None:
        made = Made().rests(3)
        other = {SHARE: made.state(2)}
        assert found(LogEqualsState(), made) == []
        right, made.final = made.final, replace(made.final, replayed=other)
        assert found(LogEqualsState(), made) == ["INV-13"]
        made.final = replace(right, rebuilt=other)
        assert found(LogEqualsState(), made) == ["INV-13"]

    def test_a_state_that_only_one_has_is_found(self) -> None:
        made = Made().rests(3)
        made.final = replace(made.final, rebuilt={SHARE._replace(partition=1): made.state(3)})
        assert found(LogEqualsState(), made) == ["INV-13", "INV-13"]

    def test_what_is_wrong_in_a_stream_is_reported(self) -> None:
        made = Made().rests(3)
        made.final = replace(made.final, torn=("an update without a snapshot",))
        assert found(LogEqualsState(), made) == ["INV-13"]

    @pytest.mark.parametrize(
        "batches",
        [
            ((3, 5, 2, 1), (5, 6, 0, 1)),
            ((5, 6, 2, 1), (3, 4, 2, 1)),
            ((3, 4, 2, 1), (5, 6, 2, 1)),
            ((2, 4, 2, 1),),
            ((4, 3, 2, 1),),
        ],
    )
    def test_misshapen_batches_are_found(self, batches: tuple[tuple[int, int, int, int], ...]) -> None:
        assert misshapen(3, batches)
        assert found(LogEqualsState(), Made().reads(3, *batches)) == ["INV-13"]

    def test_well_formed_ones_are_not(self) -> None:
        batches = ((3, 4, 2, 1), (5, 6, 0, 1), (7, 8, 0, 2), (10, 11, 0, 2))
        assert not misshapen(3, batches)
        assert not found(LogEqualsState(), Made().reads(3, *batches))

    @pytest.mark.rule("CM-40")
    def test_logs_end_where_they_ended(self) -> None:
        made = Made().rests(3)
        made.final = replace(made.final, logs_replayed={(TOPIC, 0): LogEnd(0, 3)})
        assert not found(LogsOutlive(), made)
        made.final = replace(made.final, logs_replayed={(TOPIC, 0): LogEnd(0, 2)})
        assert found(LogsOutlive(), made) == ["CM-40"]


def test_states_that_are_seen_count_as_those_that_are_confirmed() -> None:
    made = Made().produced(0).reads(0).acquires("A", 0)
    made.history.add(StateSeen(5, "s", SHARE, 2, 7, 1, 0, ()))
    assert found(NothingSkipped(), made) == ["INV-9"]
