"""Tests the checkers of values, sessions, membership, responses and sizes, and that every rule is declared by a
checker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kip932.ids import ACK_ACCEPT, ACK_RENEW
from tests.simulation.checkers.catalogue import ALL, judged
from tests.simulation.checkers.isolation import TopicIds
from tests.simulation.checkers.liveness import ClientsRecover, FetchesEnd
from tests.simulation.checkers.membership import ABANDONED, Assignments, Expiry, GroupEpochs, MemberEpochs
from tests.simulation.checkers.response import ResponseShape
from tests.simulation.checkers.sessions import Sessions
from tests.simulation.checkers.values import NoInvention, ProducedStays, StoredOnce
from tests.simulation.checkers.window import Bounds
from tests.simulation.final import GroupEnd, LogEnd
from tests.simulation.history import (
    Administered,
    ClientFailed,
    ProcessChanged,
    Produced,
    ProduceSent,
    SessionAnswered,
    SessionEnded,
    SizesSeen,
)
from tests.simulation.leader_events import ObjectMade, StartResolved
from tests.simulation.made import SHARE, TOPIC, Made, found

OTHER = "cd" * 16


class TestNoInvention:
    """Covers values and places in INV-2, but not keys, headers, control records, or aborted and open transactions."""

    pytestmark = pytest.mark.rule("INV-2")

    def test_what_was_produced_and_acquired_may_be_delivered(self) -> None:
        assert not found(NoInvention(), Made().produced(0).acquires("A", 0).delivered("A", 0))

    def test_its_produce_may_not_have_been_answered_yet(self) -> None:
        made = Made()
        made.add(ProduceSent, "t", b"v0")
        assert not found(NoInvention(), made.acquires("A", 0).delivered("A", 0).produced(0, sent=False))

    def test_a_value_that_was_not_produced_is_found(self) -> None:
        assert found(NoInvention(), Made().acquires("A", 0).delivered("A", 0)) == ["INV-2"]

    def test_another_value_at_the_same_place_is_found(self) -> None:
        made = Made().produced(0, 1).acquires("A", 0).delivered("A", 0, value=b"v1")
        assert found(NoInvention(), made) == ["INV-2"]
        made = Made().produced(0).rests(1)
        made.final = replace(made.final, values={(TOPIC, 0): {0: b"v7"}})
        assert found(NoInvention(), made) == ["INV-2"]

    def test_a_delivery_without_an_acquisition_of_its_own_is_found(self) -> None:
        assert found(NoInvention(), Made().produced(0).acquires("B", 0).delivered("A", 0)) == ["INV-2"]
        made = Made().produced(0).acquires("A", 0).delivered("A", 0)
        assert found(NoInvention(), made.delivered("A", 0)) == ["INV-2"]
        assert found(NoInvention(), Made().produced(0).acquires("A", 0).delivered("A", 0, 2)) == ["INV-2"]

    def test_a_renewed_record_comes_back(self) -> None:
        made = Made().produced(0).acquires("A", 0).delivered("A", 0).settles("A", 0, kind=ACK_RENEW)
        assert not found(NoInvention(), made.acquires("A", 0, count=2).delivered("A", 0, 2).delivered("A", 0))


class TestStoredOnce:
    pytestmark = pytest.mark.rule("CM-43")

    def test_a_value_at_two_places_is_found(self) -> None:
        made = Made().produced(0)
        made.add(Produced, b"v0", made.place(1))
        assert found(StoredOnce(), made) == ["CM-43"]

    def test_a_repetition_that_was_not_reported_is_in_the_log(self) -> None:
        made = Made().produced(0).rests(1)
        made.final = replace(made.final, values={(TOPIC, 0): {0: b"v0", 1: b"v0"}})
        assert found(StoredOnce(), made) == ["CM-43"]

    def test_once_is_right_however_often_it_is_reported(self) -> None:
        assert not found(StoredOnce(), Made().produced(0).acquires("A", 0).delivered("A", 0).delivered("B", 0).rests(1))


class TestProducedStays:
    pytestmark = pytest.mark.rule("INV-1")

    def test_a_confirmed_record_that_is_not_in_its_log_is_found(self) -> None:
        assert found(ProducedStays(), Made().produced(0, 1).rests(1)) == ["INV-1"]
        assert not found(ProducedStays(), Made().produced(0, 1).rests(2))

    def test_deleted_records_and_topics_may_be_gone(self) -> None:
        made = Made().produced(0, 1).rests(2)
        made.final = replace(made.final, values={}, logs={(TOPIC, 0): LogEnd(2, 2)})
        assert not found(ProducedStays(), made)
        made.final = replace(made.final, logs={})
        assert not found(ProducedStays(), made)

    def test_of_a_topic_that_may_be_deleted_nothing_is_promised(self) -> None:
        made = Made().produced(0, 1).rests(1)
        made.add(Administered, "DeleteTopics", "t", TOPIC, "REQUEST_TIMED_OUT", 0)
        assert not found(ProducedStays(), made)


class TestTopicIds:
    pytestmark = pytest.mark.rule("INV-15")

    def made(self) -> Made:
        made = Made()
        made.add(Administered, "CreateTopics", "t", TOPIC, "")
        made.add(Administered, "CreateTopics", "u", OTHER, "")
        return made.produced(0)

    def test_a_record_comes_out_of_the_topic_it_was_sent_to(self) -> None:
        assert not found(TopicIds(), self.made().delivered("A", 0))
        made = self.made()
        made.share = made.share._replace(topic_id=OTHER)
        assert found(TopicIds(), made.delivered("A", 0)) == ["INV-15"]

    def test_state_of_a_deleted_topic_is_found_at_the_end(self) -> None:
        assert not found(TopicIds(), self.made().rests(1))
        made = self.made().rests(1)
        made.final = replace(made.final, logs={(OTHER, 0): LogEnd(0, 0)})
        assert found(TopicIds(), made) == ["INV-15", "INV-15"]


class TestSessions:
    pytestmark = pytest.mark.rule("INV-14")

    def opened(self) -> Made:
        made = Made()
        made.asks("A", call="ShareFetch", session_epoch=0, session_id=0, accepted=5)
        return made

    def test_exactly_the_next_epoch_is_taken(self) -> None:
        made = self.opened()
        for epoch in (1, 2, 3):
            made.asks("A", session_epoch=epoch, session_id=5, accepted=5)
        assert not found(Sessions(), made)

    @pytest.mark.parametrize("epoch", [2, 3, 4, 6])
    def test_any_other_that_is_taken_is_found(self, epoch: int) -> None:
        made = self.opened()
        for each in (1, 2, 3, 4):
            made.asks("A", session_epoch=each, session_id=5, accepted=5)
        made.asks("A", session_epoch=epoch, session_id=5, accepted=5)
        assert found(Sessions(), made) == ["INV-14"]

    def test_refusing_the_next_is_found_and_refusing_others_is_not(self) -> None:
        made = self.opened()
        made.asks("A", session_epoch=2, session_id=5, accepted=0, code=123)
        made.asks("A", session_epoch=1, session_id=6, accepted=0, code=123)
        made.asks("A", session_epoch=1, session_id=0, connection="2", accepted=0, code=123)
        made.asks("A", session_epoch=1, session_id=5, accepted=0, code=42)
        assert not found(Sessions(), made)
        made.asks("A", session_epoch=1, session_id=5, accepted=0, code=123)
        assert found(Sessions(), made) == ["INV-14"]

    def test_a_session_that_ended_takes_nothing(self) -> None:
        made = self.opened()
        made.add(SessionEnded, 1, "g", "A")
        made.asks("A", session_epoch=1, session_id=5, accepted=0, code=122)
        assert not found(Sessions(), made)
        made.asks("A", session_epoch=1, session_id=5, accepted=5)
        assert found(Sessions(), made) == ["INV-14"]

    def test_one_that_was_closed_is_gone_and_one_that_was_replaced_begins_again(self) -> None:
        made = self.opened()
        made.asks("A", session_epoch=-1, session_id=5, accepted=5)
        made.add(SessionEnded, 1, "g", "A")
        made.asks("A", call="ShareFetch", session_epoch=0, session_id=0, accepted=6)
        made.add(SessionEnded, 1, "g", "A")
        made.asks("A", call="ShareFetch", session_epoch=0, session_id=0, accepted=7)
        made.asks("A", session_epoch=1, session_id=7, accepted=7)
        assert not found(Sessions(), made)
        made.asks("A", session_epoch=2, session_id=6, accepted=6)
        assert found(Sessions(), made) == ["INV-14"]

    def test_another_process_has_sessions_of_its_own(self) -> None:
        made = self.opened().successor()
        made.asks("A", session_epoch=1, session_id=5, accepted=0, code=122)
        assert not found(Sessions(), made)

    def test_an_effect_of_a_refused_request_is_found(self) -> None:
        made = self.opened()
        request = made.asks("A", (0, 0, (ACK_ACCEPT,)), session_epoch=9, session_id=5, accepted=0, code=123)
        assert not found(Sessions(), made.answers(request, 123))
        assert found(Sessions(), made.does(request)) == ["INV-14"]


class TestResponseShape:
    pytestmark = pytest.mark.rule("INV-20")

    def test_a_range_within_its_data_is_right(self) -> None:
        assert not found(ResponseShape(), Made().produced(0, 1).acquires("A", 0, 1))

    @pytest.mark.parametrize(
        "wrong", [{"start_offset": 1}, {"high_watermark": 2}, {"data": ((0, 1),)}, {"data": ((1, 2),)}]
    )
    def test_one_outside_of_offsets_or_data_is_found(self, wrong: dict[str, Any]) -> None:
        assert found(ResponseShape(), Made().produced(0, 1, 2).acquires("A", 0, 2, **wrong)) == ["INV-20"]

    def test_an_offset_without_a_record_needs_no_data(self) -> None:
        assert not found(ResponseShape(), Made().produced(0, 2).acquires("A", 0, 2, data=((0, 0), (2, 2))))

    def test_ranges_of_one_answer_ascend(self) -> None:
        made = Made().acquires("A", 0, 4)
        made.requests -= 1
        assert not found(ResponseShape(), made.acquires("A", 5, 6))
        made.requests -= 1
        assert found(ResponseShape(), made.acquires("A", 6, 7)) == ["INV-20"]


class TestMembership:
    pytestmark = pytest.mark.rule("INV-16")

    def test_epochs_that_rise_are_right(self) -> None:
        made = Made().beats("A", 0, 2).beats("A", 2, 2).beats("A", 2, 3).beats("A", 2, 3).beats("A", 3, 3)
        assert not found(MemberEpochs(), made)
        assert not found(MemberEpochs(), made.beats("A", -1, -1).beats("A", 0, 4))

    def test_an_epoch_that_falls_is_found(self) -> None:
        assert found(MemberEpochs(), Made().beats("A", 0, 3).beats("A", 3, 2)) == ["INV-16"]

    def test_answers_that_overtake_each_other_are_not(self) -> None:
        assert not found(MemberEpochs(), Made().beats("A", 0, 3).beats("A", 0, 2, asked=0))

    @pytest.mark.parametrize("sent", [9, 2])
    def test_an_epoch_that_is_neither_the_last_nor_the_one_before_is_found(self, sent: int) -> None:
        made = Made().beats("A", 0, 2).beats("A", 2, 3).beats("A", 3, 4).beats("A", sent, 4)
        assert found(MemberEpochs(), made) == ["INV-16"]

    def test_a_refused_one_is_right(self) -> None:
        assert not found(MemberEpochs(), Made().beats("A", 0, 2).beats("A", 9, 0, code=110))

    def test_the_epoch_of_a_group_rises_when_a_member_comes_or_goes(self) -> None:
        assert not found(GroupEpochs(), Made().group(2, {"A": 2}).group(2, {"A": 2}).group(3, {"A": 2, "B": 3}))
        assert found(GroupEpochs(), Made().group(2, {"A": 2}).group(2, {"A": 2, "B": 2})) == ["INV-16"]
        assert found(GroupEpochs(), Made().group(3, {"A": 2}).group(2, {"A": 2})) == ["INV-16"]

    def test_nothing_is_ahead_of_the_group(self) -> None:
        assert found(GroupEpochs(), Made().group(2, {"A": 3})) == ["INV-16"]
        assert found(GroupEpochs(), Made().group(2, {"A": 2}, assigned=3)) == ["INV-16"]

    def test_a_partition_without_an_owner_is_found_after_a_heartbeat(self) -> None:
        made = Made().group(2, {"A": 2}, owned=()).beats("A", 2, 2).group(2, {"A": 2}, owned=())
        assert found(Assignments(), made) == ["INV-16"]

    def test_before_the_next_heartbeat_or_assignment_it_is_not(self) -> None:
        made = Made().group(2, {"A": 2}, owned=())
        assert not found(Assignments(), made.group(2, {"A": 2}, owned=()))
        made = Made().group(3, {"A": 2}, owned=(), assigned=2).beats("A", 2, 2)
        assert not found(Assignments(), made.group(3, {"A": 2}, owned=(), assigned=2))
        made = Made().group(2, {"A": 2}, owned=()).beats("A", 2, 3).group(3, {"A": 3})
        assert not found(Assignments(), made)
        made = Made().group(2, {"A": 2}, owned=()).beats("A", 2, 2, asked=0).group(2, {"A": 2}, owned=())
        assert not found(Assignments(), made)

    def test_a_member_that_is_gone_before_its_session_ran_out_is_found(self) -> None:
        made = Made().at(1_000).beats("A", 0, 2).group(2, {"A": 2, "B": 2})
        assert found(Expiry(), made.at(3_999).group(3, {"B": 3})) == ["INV-16"]
        made = Made().at(1_000).beats("A", 0, 2).group(2, {"A": 2, "B": 2})
        assert not found(Expiry(), made.at(4_000).group(3, {"B": 3}))

    def test_a_heartbeat_whose_caller_had_gone_may_have_come_too_late_or_in_time(self) -> None:
        made = Made().at(1_000).beats("A", 0, 2).group(2, {"A": 2, "B": 2}).at(3_900).beats("A", 2, 0, ABANDONED)
        assert not found(Expiry(), made.at(4_100).group(3, {"B": 3})), "refused: it had been silent for too long"
        made = Made().at(1_000).begins("drain").beats("A", 0, 2).at(9_000).beats("A", 2, 0, ABANDONED)
        assert not found(Expiry(), made.at(13_000).group(2, {"A": 2})), "taken: it had come back before"

    @pytest.mark.parametrize("code", [0, ABANDONED, 16])
    def test_one_that_said_that_it_leaves_is_not(self, code: int) -> None:
        made = Made().at(1_000).beats("A", 0, 2).group(2, {"A": 2}).at(1_100).beats("A", -1, -1, code)
        assert not found(Expiry(), made.at(1_200).group(3, {}))

    def test_another_process_may_know_more(self) -> None:
        made = Made().at(1_000).beats("A", 0, 2).group(2, {"A": 2}).at(1_100)
        assert not found(Expiry(), made.successor().group(3, {}))

    def test_a_silent_member_that_stays_is_found_when_there_are_no_faults(self) -> None:
        made = Made().beats("A", 0, 2).begins("drain").at(5_000).beats("B", 0, 3)
        made.at(9_000).group(3, {"A": 2, "B": 3}).beats("B", 3, 3)
        assert not found(Expiry(), made)
        assert found(Expiry(), made.at(10_000).group(3, {"A": 2, "B": 3})) == ["INV-16"]

    def test_until_a_heartbeat_shows_that_its_coordinator_counts_it_may_stay(self) -> None:
        made = Made().beats("A", 0, 2).at(1).begins("drain").at(9_000).group(2, {"A": 2})
        assert not found(Expiry(), made.at(20_000).group(2, {"A": 2}))

    def test_one_that_is_heard_of_stays(self) -> None:
        made = Made().begins("drain").beats("A", 0, 2).at(9_000).beats("A", 2, 2).group(2, {"A": 2})
        assert not found(Expiry(), made.at(11_000).group(2, {"A": 2}))


class TestLiveness:
    pytestmark = pytest.mark.rule("INV-19")

    def asked(self, wait_ms: int = 500) -> Made:
        made = Made().begins("drain").at(30_000)
        made.asks("A", call="ShareFetch", session_epoch=0, accepted=5, max_wait_ms=wait_ms)
        return made

    def answered(self, made: Made, at_ms: int) -> Made:
        made.at(at_ms).add(SessionAnswered, 1, 1, 30_000, "ShareFetch", "g", "A", 0, 0)
        return made

    def test_a_fetch_that_ends_with_its_wait_is_right(self) -> None:
        assert not found(FetchesEnd(), self.answered(self.asked(), 30_500))

    def test_one_that_ends_much_later_or_never_is_found(self) -> None:
        assert found(FetchesEnd(), self.answered(self.asked(), 31_500)) == ["INV-19"]
        assert found(FetchesEnd(), self.asked().at(31_500).begins("rest")) == ["INV-19"]

    def test_one_that_no_caller_waits_for_any_more_is_not(self) -> None:
        made = self.asked().at(30_100)
        made.add(SessionEnded, 1, "g", "A")
        assert not found(FetchesEnd(), made.at(40_000).begins("rest"))
        made = self.asked().at(30_100)
        made.add(ProcessChanged, "killed", 1)
        assert not found(FetchesEnd(), made.at(40_000).begins("rest"))

    def test_under_faults_anything_may_take_its_time(self) -> None:
        made = Made().at(10)
        made.asks("A", call="ShareFetch", session_epoch=0, accepted=5, max_wait_ms=500)
        assert not found(FetchesEnd(), made.at(5_000).begins("drain"))

    def test_acknowledgements_wait_for_their_write(self) -> None:
        made = Made().begins("drain")
        request = made.asks("A", (0, 0, (ACK_ACCEPT,)), accepted=5)
        made.at(15_000).add(SessionAnswered, 1, request, 0, "ShareAcknowledge", "g", "A", 1, 0)
        assert not found(FetchesEnd(), made)
        made = Made().begins("drain")
        made.asks("A", (0, 0, (ACK_ACCEPT,)), accepted=5)
        assert found(FetchesEnd(), made.at(31_000).begins("rest")) == ["INV-19"]

    def test_a_client_that_fails_long_after_the_last_fault_is_found(self) -> None:
        made = Made().begins("calm").at(20_000)
        made.add(ClientFailed, "poll", "UNAVAILABLE")
        assert not found(ClientsRecover(), made)
        made.at(30_000).add(ClientFailed, "poll", "UNAVAILABLE")
        assert found(ClientsRecover(), made) == ["INV-19"]

    def test_a_group_that_could_not_be_emptied_or_a_process_that_gave_up_is_found(self) -> None:
        made = Made()
        made.add(ClientFailed, "drain", "NOT_EMPTY")
        assert found(ClientsRecover(), made) == ["INV-19"]
        made = Made()
        made.final = replace(made.final, fatal=("a gave up",))
        assert found(ClientsRecover(), made) == ["INV-19"]


class TestBounds:
    @pytest.mark.rule("INV-10")
    def test_a_size_past_its_bound_is_found_once(self) -> None:
        made = Made()
        made.add(SizesSeen, (("sessions", 2, 2),))
        assert not found(Bounds(), made)
        made.add(SizesSeen, (("sessions", 3, 2),))
        made.add(SizesSeen, (("sessions", 4, 2),))
        assert found(Bounds(), made) == ["INV-10"]

    @pytest.mark.rule("CM-18")
    @pytest.mark.rule("CM-21")
    def test_streams_that_are_too_long_and_keys_that_nothing_owns_are_found(self) -> None:
        made = Made().rests(0)
        made.final = replace(made.final, streams={"{sgs:0}:log": (31, 30)}, leftovers=("{tp:x:0}:log",))
        assert found(Bounds(), made) == ["CM-18", "CM-21"]


def test_every_rule_has_a_checker() -> None:
    rules = {rule for checker in ALL for rule in checker.rules}
    assert {f"INV-{number}" for number in range(1, 21)} <= rules
    assert "CM-43" in rules


def test_a_plain_life_breaks_no_rule() -> None:
    made = Made().begins("work").beats("A", 0, 2).group(2, {"A": 2})
    made.asks("A", call="ShareFetch", session_epoch=0, session_id=0, accepted=5)
    made.answered("Initialize", -1).reads(-1)
    made.add(ObjectMade, 1, SHARE, made.object_id, made.leader_epoch, made.generation)
    made.add(StartResolved, 1, SHARE, made.object_id, made.state_epoch, 0, 0, 0)
    made.writes(0)
    for number in range(200):
        first = number * 10
        made.at(number * 20).produced(*range(first, first + 10))
        made.acquires("A", first, first + 9, start_offset=first, high_watermark=first + 10)
        for offset in range(first, first + 10):
            made.delivered("A", offset)
        request = made.asks("A", (first, first + 9, (ACK_ACCEPT,)), session_id=5, accepted=5, session_epoch=number + 1)
        made.writes(first + 10).does(request, start_offset=first).answers(request)
    made.begins("calm").begins("drain").group(2, {"A": 2}).rests(2_000).begins("rest")
    group = {"g": GroupEnd(2, members=1, initialized=((TOPIC, 0),))}
    final = replace(made.final, groups=group, groups_replayed=group)
    assert not list(judged(made.history, final))
