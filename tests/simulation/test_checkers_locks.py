"""Tests the checkers of locks, counts and windows: bad histories are found, and the most similar good ones pass."""

from __future__ import annotations

import pytest

from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW, STATE_ACKNOWLEDGED, STATE_AVAILABLE
from tests.simulation.checkers.counts import DeliveryCounts
from tests.simulation.checkers.exclusion import MutualExclusion
from tests.simulation.checkers.finality import AcceptIsFinal, StoredIsFinal
from tests.simulation.checkers.ownership import Ownership
from tests.simulation.checkers.window import Memory, Window
from tests.simulation.delay_events import TakeBackAsked
from tests.simulation.leader_events import MemoryWrong
from tests.simulation.made import LOCK_MS, Made, found

INVALID_RECORD_STATE = 121
COORDINATOR_NOT_AVAILABLE = 15


class TestMutualExclusion:
    pytestmark = pytest.mark.rule("INV-3")

    def test_a_second_lock_within_the_first_is_found(self) -> None:
        made = Made().locks("A", 0, 9).at(LOCK_MS - 1).locks("B", 9, 12, 2)
        assert found(MutualExclusion(), made) == ["INV-3"]

    def test_a_lock_may_follow_at_the_very_moment_the_first_ends(self) -> None:
        assert not found(MutualExclusion(), Made().locks("A", 0, 9).at(LOCK_MS).locks("B", 9, 12, 2))

    def test_a_confirmed_release_ends_a_lock(self) -> None:
        made = Made().locks("A", 0, 9).at(10).settles("A", 3, 4, ACK_RELEASE).locks("B", 3, 4, 2)
        assert not found(MutualExclusion(), made)
        assert found(MutualExclusion(), made.locks("B", 5)) == ["INV-3"]

    def test_a_refused_release_does_not(self) -> None:
        made = Made().locks("A", 0).at(10).settles("A", 0, kind=ACK_RELEASE, code=INVALID_RECORD_STATE)
        assert found(MutualExclusion(), made.locks("B", 0, count=2)) == ["INV-3"]

    def test_one_of_unknown_outcome_may_be_found_stored_when_it_is_read_back(self) -> None:
        made = Made().locks("A", 0).at(10).settles("A", 0, kind=ACK_RELEASE, code=COORDINATOR_NOT_AVAILABLE)
        assert not found(MutualExclusion(), made.locks("B", 0, count=2))

    def test_the_release_of_another_member_ends_nothing(self) -> None:
        made = Made().locks("A", 0).at(10).settles("B", 0, kind=ACK_RELEASE).locks("B", 0, count=2)
        assert found(MutualExclusion(), made) == ["INV-3"]

    def test_a_renewal_prolongs_the_lock_from_when_it_was_asked(self) -> None:
        made = Made().locks("A", 0).at(900).settles("A", 0, kind=ACK_RENEW)
        assert found(MutualExclusion(), made.at(1_500).locks("B", 0, count=2)) == ["INV-3"]
        made = Made().locks("A", 0).at(900).settles("A", 0, kind=ACK_RENEW)
        assert not found(MutualExclusion(), made.at(1_900).locks("B", 0, count=2))

    def test_a_refused_requests_renewal_counts_and_may_shorten_a_lock_to_the_groups_new_time(
        self,
    ) -> None:
        made = Made().locks("A", 0, 1).at(100)
        made.does(made.asks("A", (0, 0, (ACK_RENEW,))), INVALID_RECORD_STATE, lock_ms=200)
        assert not found(MutualExclusion(), made.at(300).locks("B", 0, count=2))
        assert found(MutualExclusion(), made.locks("B", 1, count=2)) == ["INV-3"]
        made = Made().locks("A", 0).at(100)
        made.does(made.asks("A", (0, 0, (ACK_RENEW,))), INVALID_RECORD_STATE, lock_ms=200)
        assert found(MutualExclusion(), made.at(299).locks("B", 0, count=2)) == ["INV-3"]

    def test_a_renewal_shortens_a_lock_while_its_request_waits_for_a_write(self) -> None:
        made = Made().locks("A", 0, 1).at(100)
        slow = made.asks("A", (0, 1, (ACK_RENEW, ACK_ACCEPT)))
        made.at(300).locks("B", 0, count=2).at(400).does(slow, COORDINATOR_NOT_AVAILABLE, lock_ms=200, begun_ms=100)
        assert not found(MutualExclusion(), made)
        made = Made().locks("A", 0, 1).at(100)
        slow = made.asks("A", (0, 1, (ACK_RENEW, ACK_ACCEPT)))
        made.at(300).locks("B", 1, count=2).at(400).does(slow, COORDINATOR_NOT_AVAILABLE, lock_ms=200, begun_ms=100)
        assert found(MutualExclusion(), made) == ["INV-3"]

    def test_the_end_of_a_session_gives_back_what_its_member_holds(self) -> None:
        made = Made().locks("A", 0, 1).locks("B", 2).at(10).gives_back("A").locks("B", 0, 1, 2)
        assert not found(MutualExclusion(), made)
        assert found(MutualExclusion(), made.locks("A", 2, count=2)) == ["INV-3"]

    def test_a_range_that_could_not_be_delivered_is_given_back_alone(self) -> None:
        made = Made().locks("A", 0, 3).at(10).gives_back("A", (0, 1)).locks("B", 0, 1, 2)
        assert not found(MutualExclusion(), made)
        assert found(MutualExclusion(), made.locks("B", 2, count=2)) == ["INV-3"]

    def test_a_session_may_end_while_a_renewal_waits_for_the_write_of_its_request(self) -> None:
        made = Made().locks("A", 0, 1).at(100)
        slow = made.asks("A", (0, 1, (ACK_RENEW, ACK_ACCEPT)))
        made.at(200).gives_back("A").at(300).does(slow).at(400).locks("B", 0, count=2)
        assert not found(MutualExclusion(), made)

    def test_another_object_knows_nothing_of_the_locks_of_the_first(self) -> None:
        assert not found(MutualExclusion(), Made().locks("A", 0).at(1).successor().locks("B", 0))


class TestAcceptIsFinal:
    pytestmark = pytest.mark.rule("INV-4")

    @pytest.mark.parametrize("kind", [ACK_ACCEPT, ACK_REJECT])
    def test_what_was_settled_and_comes_back_is_found_across_objects(self, kind: int) -> None:
        made = Made().acquires("A", 0, 9).at(10).settles("A", 4, kind=kind).at(11).successor().acquires("B", 0, 9)
        assert found(AcceptIsFinal(), made) == ["INV-4"]

    def test_a_release_or_an_error_is_not_final(self) -> None:
        made = Made().acquires("A", 0, 1).at(10).settles("A", 0, kind=ACK_RELEASE)
        made.settles("A", 1, code=COORDINATOR_NOT_AVAILABLE)
        assert not found(AcceptIsFinal(), made.at(20).acquires("B", 0, 1, 2))

    def test_an_answer_that_leaves_late_reports_an_older_lock(self) -> None:
        made = Made().acquires("A", 0).at(10).settles("A", 0).at(900).acquires("B", 0, count=2, locked_ms=5)
        assert not found(AcceptIsFinal(), made)

    def test_what_an_old_leader_locks_but_never_answers_does_no_harm(self) -> None:
        made = Made().acquires("A", 0).at(10).settles("A", 0).at(20).locks("B", 0, count=2)
        assert not found(AcceptIsFinal(), made)

    def test_altered_or_deleted_offsets_begin_again(self) -> None:
        made = Made().acquires("A", 0).at(10).settles("A", 0).at(20)
        made.state_epoch = 3
        assert not found(AcceptIsFinal(), made.acquires("B", 0))
        made = Made().acquires("A", 0).at(10).settles("A", 0).answered("Delete").at(20).acquires("B", 0)
        assert not found(AcceptIsFinal(), made)

    def test_other_groups_have_their_own_say(self) -> None:
        made = Made().acquires("A", 0).at(10).settles("A", 0).at(20)
        made.share = made.share._replace(group_id="h")
        assert not found(AcceptIsFinal(), made.acquires("B", 0))


class TestStoredIsFinal:
    pytestmark = pytest.mark.rule("INV-5")

    def test_what_is_stored_as_finished_and_comes_back_is_found_though_it_was_not_reported(self) -> None:
        made = Made().acquires("A", 0, 1).at(10).writes(0, (1, 1, STATE_ACKNOWLEDGED, 1)).at(20)
        assert found(StoredIsFinal(), made.acquires("B", 0, 1, 2)) == ["INV-5"]
        made = Made().acquires("A", 0, 1).at(10).writes(1).at(20)
        assert found(StoredIsFinal(), made.acquires("B", 0, 1, 2)) == ["INV-5"]

    def test_so_is_what_a_coordinator_holds_though_it_never_confirmed_the_write(self) -> None:
        made = Made().acquires("A", 0).at(10).writes(1, code=COORDINATOR_NOT_AVAILABLE)
        made.history.add(made.state(1))
        assert found(StoredIsFinal(), made.at(20).acquires("B", 0, count=2)) == ["INV-5"]

    def test_what_was_locked_before_or_is_stored_as_available_is_not(self) -> None:
        made = Made().acquires("A", 0).at(10).writes(1).at(20).acquires("B", 0, locked_ms=5)
        assert not found(StoredIsFinal(), made)
        made = Made().acquires("A", 0).at(10).writes(0, (0, 0, STATE_AVAILABLE, 1)).at(20).acquires("B", 0, count=2)
        assert not found(StoredIsFinal(), made)

    def test_a_write_that_failed_stores_nothing_and_a_lock_without_an_answer_does_no_harm(self) -> None:
        made = Made().acquires("A", 0).at(10).writes(1, code=COORDINATOR_NOT_AVAILABLE).at(20).acquires("B", 0, count=2)
        assert not found(StoredIsFinal(), made)
        assert not found(StoredIsFinal(), Made().acquires("A", 0).at(10).writes(1).at(20).locks("B", 0, count=2))

    def test_altered_or_deleted_offsets_begin_again(self) -> None:
        made = Made().acquires("A", 0).at(10).writes(1).at(20)
        made.state_epoch = 3
        assert not found(StoredIsFinal(), made.acquires("B", 0))
        made = Made().acquires("A", 0).at(10).writes(1).answered("Delete").at(20).acquires("B", 0)
        assert not found(StoredIsFinal(), made)


class TestOwnership:
    pytestmark = pytest.mark.rule("INV-6")

    def test_another_members_record_is_found(self) -> None:
        assert found(Ownership(), Made().locks("A", 0, 9).at(10).settles("B", 3)) == ["INV-6"]

    def test_the_holder_is_right_until_its_lock_ends(self) -> None:
        assert not found(Ownership(), Made().locks("A", 0).at(LOCK_MS - 1).settles("A", 0))
        assert found(Ownership(), Made().locks("A", 0).at(LOCK_MS).settles("A", 0)) == ["INV-6"]

    def test_the_moment_it_was_asked_counts_not_when_it_was_written(self) -> None:
        made = Made().locks("A", 0).at(LOCK_MS - 1)
        request = made.asks("A", (0, 0, (ACK_ACCEPT,)))
        assert not found(Ownership(), made.at(LOCK_MS + 500).does(request).answers(request))

    def test_a_renewal_counts_from_when_it_was_asked_even_while_its_request_waits(self) -> None:
        made = Made().locks("A", 0, 1).at(900)
        slow = made.asks("A", (0, 1, (ACK_RENEW, ACK_ACCEPT)))
        made.at(1_800).settles("A", 0, kind=ACK_RENEW)
        assert not found(Ownership(), made.at(1_850).does(slow).answers(slow))
        assert found(Ownership(), made.at(2_800).settles("A", 0)) == ["INV-6"]

    def test_a_renewal_before_a_later_error_in_its_request_counts(self) -> None:
        made = Made().locks("A", 0, 1).at(900).settles("A", 0, 1, ACK_RENEW, INVALID_RECORD_STATE)
        assert not found(Ownership(), made.at(1_500).settles("A", 0))

    def test_twice_is_found_and_twice_below_the_start_offset_is_a_no_op(self) -> None:
        made = Made().locks("A", 0).at(10).settles("A", 0).at(20)
        assert not found(Ownership(), made.settles("A", 0, start_offset=1))
        assert found(Ownership(), made.settles("A", 0)) == ["INV-6"]

    def test_after_an_error_the_holder_may_try_again(self) -> None:
        made = Made().locks("A", 0).at(10).settles("A", 0, code=COORDINATOR_NOT_AVAILABLE).at(20).settles("A", 0)
        assert not found(Ownership(), made)

    def test_a_release_that_was_not_stored_leaves_the_record_with_its_member(self) -> None:
        assert not found(Ownership(), Made().locks("A", 0).at(10).gives_back("A").at(20).settles("A", 0))

    def test_a_record_that_this_object_never_gave_out_is_found_and_a_hole_is_not(self) -> None:
        made = Made().produced(0).locks("A", 1, 2).at(10).settles("A", 0, 2)
        assert found(Ownership(), made) == ["INV-6"]
        assert not found(Ownership(), Made().produced(1, 2).locks("A", 1, 2).at(10).settles("A", 0, 2))

    def test_a_former_object_settles_nothing_for_its_successor(self) -> None:
        made = Made().locks("A", 0).successor().locks("B", 0).at(10).settles("A", 0)
        assert found(Ownership(), made) == ["INV-6"]


class TestDeliveryCounts:
    pytestmark = pytest.mark.rule("INV-7")

    def test_the_first_delivery_has_count_1(self) -> None:
        assert not found(DeliveryCounts(), Made().reads(0).locks("A", 0))
        assert found(DeliveryCounts(), Made().reads(0).locks("A", 0, count=2)) == ["INV-7"]

    @pytest.mark.parametrize("count", [1, 3])
    def test_each_further_one_is_exactly_one_more(self, count: int) -> None:
        assert not found(DeliveryCounts(), Made().reads(0).locks("A", 0).locks("B", 0, count=2))
        assert found(DeliveryCounts(), Made().reads(0).locks("A", 0).locks("B", 0, count=count)) == ["INV-7"]

    def test_a_new_object_goes_on_from_what_it_has_read(self) -> None:
        made = Made().reads(0).locks("A", 0).locks("A", 0, count=2).writes(0, (0, 0, STATE_AVAILABLE, 1))
        made.successor().reads(0, (0, 0, STATE_AVAILABLE, 1))
        assert not found(DeliveryCounts(), made.locks("B", 0, count=2))

    @pytest.mark.parametrize("count", [1, 3])
    def test_it_neither_forgets_nor_skips(self, count: int) -> None:
        made = Made().reads(0).locks("A", 0).writes(0, (0, 0, STATE_AVAILABLE, 1))
        made.successor().reads(0, (0, 0, STATE_AVAILABLE, 1)).locks("B", 0, count=count)
        assert "INV-7" in found(DeliveryCounts(), made)

    def test_what_its_holder_took_back_is_repeated_ten_times_in_a_row_at_most(self) -> None:
        made = Made().reads(0)

        def back(member: str) -> Made:
            made.add(TakeBackAsked, 1, made.share, member, made.object_id, ((0, 0),))
            return made

        made.locks("A", 0)
        for _ in range(10):
            back("A").locks("A", 0)
        assert not found(DeliveryCounts(), made)
        assert "INV-7" in found(DeliveryCounts(), back("A").locks("A", 0))
        made = Made().reads(0).locks("A", 0)
        assert "INV-7" in found(DeliveryCounts(), back("B").locks("B", 0)), "by its holder"

    def test_reading_back_may_show_a_higher_count(self) -> None:
        made = Made().reads(0).locks("A", 0)
        made.generation = 2
        made.reads(0, (0, 0, STATE_AVAILABLE, 3)).locks("A", 0, count=4)
        assert not found(DeliveryCounts(), made)

    def test_beyond_the_limit_is_found(self) -> None:
        made = Made().reads(0)
        made.limit = 2
        made.locks("A", 0).locks("A", 0, count=2).locks("A", 0, count=3)
        assert "INV-7" in found(DeliveryCounts(), made)

    @pytest.mark.scenario("S-021")
    def test_one_delivery_of_a_record_at_a_limit_lowered_since(self) -> None:
        made = Made().reads(0)
        made.limit = 3
        made.locks("A", 0).locks("A", 0, count=2).limits(2).locks("A", 0, count=3)
        assert not found(DeliveryCounts(), made)
        assert found(DeliveryCounts(), made.locks("A", 0, count=4)) == ["INV-7"]

    def test_one_delivery_of_a_record_that_came_back_under_a_limit_raised_for_a_moment(self) -> None:
        made = Made().reads(0)
        made.limit = 2
        made.locks("A", 0).locks("A", 0, count=2).limits(10).gives_back("A").writes(0, (0, 0, STATE_AVAILABLE, 2))
        made.limits(2).successor().reads(0, (0, 0, STATE_AVAILABLE, 2)).locks("A", 0, count=3)
        assert not found(DeliveryCounts(), made)
        made.gives_back("A").writes(0, (0, 0, STATE_AVAILABLE, 3))
        assert found(DeliveryCounts(), made.locks("A", 0, count=4)) == ["INV-7"]

    def test_after_altered_offsets_counts_begin_again(self) -> None:
        made = Made().reads(0).locks("A", 0).locks("A", 0, count=2)
        made.state_epoch = 3
        assert not found(DeliveryCounts(), made.successor().reads(0).locks("A", 0))

    @pytest.mark.rule("INV-8")
    def test_attempts_are_bounded_by_the_limit(self) -> None:
        made = Made().reads(0)
        made.limit = 2
        made.locks("A", 0).locks("A", 0, count=2).locks("A", 0, count=1)
        assert "INV-8" in found(DeliveryCounts(), made)

    @pytest.mark.rule("INV-8")
    def test_a_new_leader_may_forget_one_that_was_under_way_and_what_could_not_be_stored(self) -> None:
        made = Made().reads(0)
        made.limit = 2
        made.locks("A", 0).writes(0, (0, 0, STATE_AVAILABLE, 1)).locks("A", 0, count=2)
        made.successor().reads(0, (0, 0, STATE_AVAILABLE, 1)).locks("B", 0, count=2)
        assert not found(DeliveryCounts(), made)
        made = Made().reads(0)
        made.limit = 2
        made.locks("A", 0).locks("A", 0, count=2)  # the write of the expiry failed
        made.successor().reads(0).locks("B", 0).locks("B", 0, count=2)
        assert not found(DeliveryCounts(), made)

    @pytest.mark.rule("INV-8")
    def test_it_may_not_forget_what_was_stored(self) -> None:
        made = Made().reads(0)
        made.limit = 2
        made.locks("A", 0).writes(0, (0, 0, STATE_AVAILABLE, 1)).locks("A", 0, count=2)
        made.writes(0, (0, 0, STATE_AVAILABLE, 2))
        made.successor().reads(0).locks("B", 0).locks("B", 0, count=2)
        assert "INV-8" in found(DeliveryCounts(), made)


class TestWindow:
    pytestmark = pytest.mark.rule("INV-10")

    def test_only_the_rest_of_one_batch_may_go_past_the_bound(self) -> None:
        bounds = {"max_locks": 100, "batch_max": 10}
        assert not found(Window(), Made().locks("A", 0, in_flight_before=99, in_flight=109, **bounds))
        assert found(Window(), Made().locks("A", 0, in_flight_before=99, in_flight=110, **bounds)) == ["INV-10"]

    def test_a_window_whose_end_does_not_move_may_be_too_long_for_a_lowered_bound(self) -> None:
        assert not found(Window(), Made().locks("A", 0, in_flight_before=200, in_flight=200, new_offsets=0))

    @pytest.mark.rule("PL-607", "PL-935")
    def test_the_holes_of_a_loaded_state_need_no_room_and_new_offsets_do(self) -> None:
        made = Made().locks("A", 42, 540, in_flight_before=5, in_flight=504, new_offsets=0)
        assert not found(Window(), made)
        made.locks("A", 541, in_flight_before=504, in_flight=505, new_offsets=1)
        assert found(Window(), made) == ["INV-10"]


@pytest.mark.rule("PL-102")
def test_memory_that_contradicts_itself_is_found_once_per_object() -> None:
    made = Made()
    assert not found(Memory(), made)
    for object_id, offset in ((5, 17), (5, 18), (6, 2)):
        made.add(MemoryWrong, 1, made.share, object_id, offset, f"offset {offset}: its owner is no member")
    assert found(Memory(), made) == ["PL-102", "PL-102"]
