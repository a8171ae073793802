"""Tests the checkers that require a cause: a change without a cause in the history is found, one with a cause
passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kip932.ids import STATE_ARCHIVING, STATE_AVAILABLE
from tests.simulation.checkers.first_start import FirstStart
from tests.simulation.checkers.groups_apart import OwnDeliveries, OwnSettings
from tests.simulation.checkers.labels import LabelsKept
from tests.simulation.checkers.objects import Objects
from tests.simulation.checkers.passing import NothingSkipped
from tests.simulation.checkers.state_epochs import StateEpochs
from tests.simulation.checkers.targets import HeartbeatTargets
from tests.simulation.checkers.values import LogBegins
from tests.simulation.coordinator_events import TargetComputed
from tests.simulation.final import LogEnd
from tests.simulation.history import (
    Administered,
    Configured,
    FaultStruck,
    HeartbeatAnswered,
    LimitsSeen,
    ProcessChanged,
    ProduceSent,
    SessionEnded,
)
from tests.simulation.leader_events import ObjectDropped, ObjectMade, StartResolved
from tests.simulation.made import LOCK_MS, SHARE, TOPIC, Made, found, value

RESET = "share.auto.offset.reset"
FAIL_OVER = "fail-over of the store, 1 replicas 300 ms behind"


def asked(made: Made, call: str, target: str, detail: str, asked_ms: int = 0) -> Made:
    """Add an admin call that ended without an error."""
    made.add(Administered, call, target, detail, "", asked_ms)
    return made


def struck(made: Made, fault: str = "SIGKILL of b") -> Made:
    """Add a fault that starts and ends at once."""
    made.add(FaultStruck, fault)
    made.add(FaultStruck, fault, True)
    return made


class TestStateEpochs:
    def test_a_state_keeps_its_epoch(self) -> None:
        made = Made().answered("Initialize").reads(-1).writes(0)
        assert not found(StateEpochs(), made.rests(0))

    @pytest.mark.rule("INV-12")
    def test_another_epoch_needs_a_fail_over_of_the_store(self) -> None:
        again: dict[str, Any] = {"state_epoch": 3}
        assert found(StateEpochs(), Made().answered("Initialize").answered("Initialize", **again)) == ["INV-12"]
        assert found(StateEpochs(), Made().answered("Initialize").reads(0, **again)) == ["INV-12"]
        assert found(StateEpochs(), struck(Made().answered("Initialize")).reads(0, **again)) == ["INV-12"]
        assert not found(StateEpochs(), struck(Made().answered("Initialize"), FAIL_OVER).reads(0, **again))

    @pytest.mark.rule("INV-12")
    def test_the_end_counts_as_well(self) -> None:
        made = Made().answered("Initialize").rests(0)
        other = {SHARE: replace(made.state(0), state_epoch=9)}
        for name in ("served", "replayed", "rebuilt"):
            spoilt = Made().answered("Initialize")
            changes: dict[str, Any] = {name: other}
            spoilt.final = replace(made.final, **changes)
            assert "INV-12" in found(StateEpochs(), spoilt)

    @pytest.mark.rule("INV-15")
    def test_state_goes_with_its_topic_and_not_before(self) -> None:
        assert found(StateEpochs(), Made().answered("Initialize").answered("Delete")) == ["INV-15"]
        made = asked(Made().answered("Initialize").at(5), "DeleteTopics", "t", TOPIC, 5)
        assert not found(StateEpochs(), made.answered("Delete"))
        late = Made().answered("Delete").at(9)
        assert found(StateEpochs(), asked(late, "DeleteTopics", "t", TOPIC, 9)) == ["INV-15"]

    @pytest.mark.rule("INV-15")
    @pytest.mark.parametrize("error", ["", "REQUEST_TIMED_OUT"])
    def test_a_deletion_that_comes_late_leaves_the_next_topic_of_its_name(self, error: str) -> None:
        made = Made().at(10)
        made.add(Administered, "DeleteTopics", "t", "its former id", error, 5)
        made = asked(made.at(11), "CreateTopics", "t", TOPIC, 11)
        assert found(StateEpochs(), made.answered("Initialize").answered("Delete")) == ["INV-15"]

    @pytest.mark.rule("INV-9")
    def test_it_begins_at_0_only_where_its_partition_came_later(self) -> None:
        assert found(StateEpochs(), Made().answered("Initialize", 0)) == ["INV-9"]
        assert not found(StateEpochs(), asked(Made(), "CreatePartitions", "t", f"{TOPIC} 2").answered("Initialize", 0))
        assert found(StateEpochs(), asked(Made(), "CreatePartitions", "t", f"{TOPIC} 2").answered("Initialize", 5))


def made_object(made: Made, **more: Any) -> Made:
    """Let a leader create the current object."""
    details = {"incarnation": 1, "share": SHARE, "object_id": made.object_id, "leader_epoch": made.leader_epoch, **more}
    made.add(ObjectMade, **details, generation=made.generation)
    return made


def dropped(made: Made, reason: str) -> Made:
    """Drop the current object."""
    made.add(ObjectDropped, 1, SHARE, made.object_id, made.leader_epoch, reason)
    return made


class TestObjects:
    @pytest.mark.rule("INV-7")
    @pytest.mark.parametrize("reason", ["outcome_unknown", "state_replaced", "leadership_lost"])
    def test_one_is_let_go_in_trouble_only(self, reason: str) -> None:
        assert found(Objects(), dropped(made_object(Made()).at(30_000), reason)) == ["INV-7"]
        assert not found(Objects(), dropped(struck(made_object(Made()).at(30_000)), reason))
        assert found(Objects(), dropped(struck(made_object(Made())).at(30_000), reason)) == ["INV-7"]
        gone = asked(made_object(Made()).at(30_000), "DeleteTopics", "t", TOPIC, 30_000)
        assert not found(Objects(), dropped(gone, reason))

    def test_trouble_lasts_until_it_is_over(self) -> None:
        made = made_object(Made())
        made.add(FaultStruck, "cut")
        assert not found(Objects(), dropped(made.at(90_000), "outcome_unknown"))

    def test_a_process_that_comes_or_goes_is_trouble(self) -> None:
        made = made_object(Made()).at(30_000)
        made.add(ProcessChanged, "stopped", 4)
        assert not found(Objects(), dropped(made, "leadership_lost"))

    @pytest.mark.rule("INV-7")
    def test_an_illegal_transition_is_no_cause(self) -> None:
        assert found(Objects(), dropped(struck(made_object(Made())), "illegal_transition")) == ["INV-7"]

    @pytest.mark.rule("INV-7")
    def test_one_that_could_not_begin_has_given_nothing_out(self) -> None:
        assert not found(Objects(), dropped(made_object(Made()).at(30_000), "initialize_failed"))
        made = made_object(Made()).at(30_000).locks("A", 0)
        assert found(Objects(), dropped(made, "initialize_failed")) == ["INV-7"]

    @pytest.mark.rule("INV-7")
    def test_one_is_released_when_its_group_has_no_session_left(self) -> None:
        made = made_object(Made()).at(30_000)
        made.asks("A", session_epoch=0)
        made.asks("B", session_epoch=0)
        assert found(Objects(), dropped(made, "released")) == ["INV-7"]
        made = made_object(Made()).at(30_000)
        made.asks("A", session_epoch=0)
        made.asks("B", session_epoch=0)
        made.add(SessionEnded, 1, "g", "A")
        assert found(Objects(), dropped(made, "released")) == ["INV-7"]
        made.add(SessionEnded, 1, "g", "B")
        made.history.events = [event for event in made.history.events if not isinstance(event, ObjectDropped)]
        assert not found(Objects(), dropped(made, "released"))

    @pytest.mark.rule("INV-7")
    def test_one_that_was_loaded_for_its_letters_is_released_at_any_time_if_it_gave_nothing_out(self) -> None:
        waits = (0, 0, STATE_ARCHIVING, 1)
        made = made_object(Made()).reads(0, waits).at(30_000)
        assert not found(Objects(), made_object(dropped(made, "released").successor("a", leader_epoch=7, generation=2)))
        assert found(Objects(), dropped(made_object(Made()).reads(0).at(30_000), "released")) == ["INV-7"]
        gave = made_object(Made()).reads(0, waits).at(30_000).acquires("A", 1)
        assert found(Objects(), dropped(gave, "released")) == ["INV-7"]

    @pytest.mark.rule("INV-7")
    @pytest.mark.parametrize("reason", ["released", "leadership_lost"])
    def test_one_that_is_handed_over_is_followed_by_another_leaders(self, reason: str) -> None:
        made = dropped(struck(made_object(Made())), reason).successor("a", leader_epoch=7, generation=2)
        assert found(Objects(), made_object(made)) == ["INV-7"]
        made = dropped(struck(made_object(Made())), reason).successor("a", leader_epoch=8, generation=2)
        assert not found(Objects(), made_object(made))

    @pytest.mark.rule("INV-3")
    def test_a_process_has_one_object_at_a_time(self) -> None:
        made = made_object(Made())
        made.object_id = 2
        assert found(Objects(), made_object(made)) == ["INV-3"]

    @pytest.mark.rule("INV-3")
    def test_leadership_moves_for_a_cause(self) -> None:
        assert found(Objects(), made_object(made_object(Made()).at(30_000).successor())) == ["INV-3"]
        assert not found(Objects(), made_object(struck(made_object(Made()).at(30_000)).successor()))
        assert not found(Objects(), made_object(struck(made_object(Made())).at(90_000).successor()))
        assert found(Objects(), made_object(made_object(struck(Made()).at(30_000)).successor())) == ["INV-3"]


def reset(policy: str | None = None) -> Made:
    """Return a cluster whose groups start at earliest; the group may have its own policy."""
    made = Made()
    made.add(Configured, (("group.share.auto.offset.reset", "earliest" if policy is None else policy),))
    return made


def begins(made: Made, start: int, log_start: int = 0, end: int = 100) -> Made:
    """Create an object and resolve its start offset."""
    made_object(made)
    made.add(StartResolved, 1, SHARE, made.object_id, made.state_epoch, start, log_start, end)
    return made


class TestFirstStart:
    """Covers the initial start offset in INV-9, but not that it never decreases, nor the limits of later ones."""

    pytestmark = pytest.mark.rule("INV-9")

    def test_earliest_is_0_or_where_the_log_was_cut(self) -> None:
        assert not found(FirstStart(), begins(reset().produced(0, 1), 0))
        assert found(FirstStart(), begins(reset().produced(0, 1), 1)) == ["INV-9"]
        assert found(FirstStart(), begins(reset().produced(0, 1), 1, log_start=1)) == ["INV-9"]
        cut = asked(reset().produced(0, 1), "DeleteRecords", "t", f"{TOPIC}/0 1")
        assert not found(FirstStart(), begins(cut, 1, log_start=1))
        assert found(FirstStart(), begins(cut, 2, log_start=1)) == ["INV-9"]
        short = asked(asked(reset(), "CreateTopics", "t", TOPIC), "IncrementalAlterConfigs", "t", "retention.ms=9")
        assert not found(FirstStart(), begins(short, 1, log_start=1))
        assert found(FirstStart(), begins(short, 2, log_start=1)) == ["INV-9"]

    def test_latest_is_after_what_was_confirmed(self) -> None:
        assert not found(FirstStart(), begins(reset("latest").produced(0, 1), 2, end=2))
        assert found(FirstStart(), begins(reset("latest").produced(0, 1), 1, end=2)) == ["INV-9"]
        assert found(FirstStart(), begins(reset("latest").produced(0, 1), 3, end=2)) == ["INV-9"]

    def test_latest_is_before_what_is_sent_afterwards(self) -> None:
        assert not found(FirstStart(), begins(reset("latest").produced(0), 1).produced(1))
        assert found(FirstStart(), begins(reset("latest").produced(0), 2).produced(1)) == ["INV-9"]

    def test_by_duration_takes_what_is_young_and_leaves_what_is_old(self) -> None:
        def policy(start: int, old_ms: int = 1_000, young_ms: int = 4_000) -> Made:
            made = reset("by_duration:PT2S").at(old_ms).produced(0).at(young_ms).produced(1)
            return begins(made.at(5_000), start, end=2)

        assert not found(FirstStart(), policy(1))
        assert found(FirstStart(), policy(0)) == ["INV-9"]
        assert found(FirstStart(), policy(2)) == ["INV-9"]
        for old_ms, young_ms in ((2_940, 3_040), (2_960, 3_060)):  # clocks differ by 50 ms
            assert bool(found(FirstStart(), policy(0, old_ms, young_ms))) == (old_ms == 2_940)
            assert bool(found(FirstStart(), policy(2, old_ms, young_ms))) == (young_ms == 3_060)

    def test_a_policy_counts_from_when_it_was_asked_for(self) -> None:
        asked_for = asked(reset().produced(0), "IncrementalAlterConfigs", "g", f"{RESET}=latest")
        assert not found(FirstStart(), begins(asked_for, 1))
        other = asked(reset().produced(0), "IncrementalAlterConfigs", "another", f"{RESET}=latest")
        assert found(FirstStart(), begins(other, 1)) == ["INV-9"]
        late = asked(begins(reset().produced(0), 1).at(9), "IncrementalAlterConfigs", "g", f"{RESET}=latest", 9)
        assert found(FirstStart(), late) == ["INV-9"]

    def test_what_is_stored_first_was_resolved(self) -> None:
        assert not found(FirstStart(), begins(reset().answered("Initialize"), 0).writes(0))
        assert found(FirstStart(), reset().answered("Initialize").writes(0)) == ["INV-9"]
        made = begins(reset("latest").answered("Initialize"), 5, end=5).writes(4)
        assert found(FirstStart(), made) == ["INV-9"]


class TestLabelsKept:
    pytestmark = pytest.mark.rule("INV-2")

    SENT = (b"k", (("h", b""), ("h", None)))

    def sent(self) -> Made:
        made = Made()
        made.add(ProduceSent, "t", value(0), *self.SENT)
        return made

    def test_a_key_and_headers_come_as_they_were_sent(self) -> None:
        made = self.sent().delivered("A", 0, key=b"k", headers=self.SENT[1]).rests(1)
        made.final = replace(made.final, labels={(TOPIC, 0): {0: self.SENT}})
        assert not found(LabelsKept(), made)

    def test_null_is_not_empty_and_order_counts(self) -> None:
        for key, headers in ((b"", self.SENT[1]), (None, self.SENT[1]), (b"k", self.SENT[1][::-1]), (b"k", ())):
            assert found(LabelsKept(), self.sent().delivered("A", 0, key=key, headers=headers)) == ["INV-2"]

    def test_the_log_is_judged_as_well(self) -> None:
        made = self.sent().rests(1)
        made.final = replace(made.final, labels={(TOPIC, 0): {0: (b"k", (("h", b""), ("h", b"")))}})
        assert found(LabelsKept(), made) == ["INV-2"]


class TestLogBegins:
    pytestmark = pytest.mark.rule("INV-1")

    def begins_at(self, start: int) -> Made:
        made = asked(Made(), "CreateTopics", "t", TOPIC).rests(9)
        made.final = replace(made.final, logs={(TOPIC, 0): LogEnd(start, 9)})
        return made

    def test_at_0_or_where_records_were_deleted_to(self) -> None:
        assert not found(LogBegins(), self.begins_at(0))
        assert found(LogBegins(), self.begins_at(3)) == ["INV-1"]
        assert not found(LogBegins(), asked(self.begins_at(3), "DeleteRecords", "t", f"{TOPIC}/0 3"))
        assert found(LogBegins(), asked(self.begins_at(3), "DeleteRecords", "t", f"{TOPIC}/0 2")) == ["INV-1"]
        assert found(LogBegins(), asked(self.begins_at(3), "DeleteRecords", "t", f"{TOPIC}/1 3")) == ["INV-1"]

    def test_anywhere_where_retention_was_changed(self) -> None:
        change = ("IncrementalAlterConfigs", "t", "retention.ms=9")
        assert not found(LogBegins(), asked(self.begins_at(3), *change))
        assert found(LogBegins(), asked(self.begins_at(3), change[0], "u", change[2])) == ["INV-1"]


@pytest.mark.rule("INV-9")
def test_a_deleted_topic_that_kept_its_records_is_judged_by_them() -> None:
    made = asked(Made(), "CreateTopics", "t", TOPIC).produced(0).reads(0).acquires("A", 0).writes(1)
    assert found(NothingSkipped(), made) == ["INV-9"]
    assert not found(NothingSkipped(), asked(made, "IncrementalAlterConfigs", "t", "retention.ms=9"))
    made.final = replace(made.final, logs={(TOPIC, 0): LogEnd(0, 1)})
    assert found(NothingSkipped(), made) == ["INV-9"]


def computed(made: Made, epoch: int, *parts: int, member: str = "A") -> Made:
    """Compute the group's target."""
    made.add(TargetComputed, 1, "g", epoch, ((member, tuple((TOPIC, part) for part in parts)),))
    return made


def beat(made: Made, epoch: int, *parts: int, subscribed: tuple[str, ...] | None = None, **more: Any) -> Made:
    """Respond to a member with an assignment."""
    parts_given = tuple((TOPIC, part) for part in parts)
    details: dict[str, Any] = {"sent_epoch": 1, "asked": len(made.history.events), **more}
    made.add(
        HeartbeatAnswered,
        incarnation=1,
        group_id="g",
        member_id="A",
        member_epoch=epoch,
        assignment=parts_given,
        code=0,
        subscribed=subscribed,
        **details,
    )
    return made


class TestHeartbeatTargets:
    def ready(self) -> Made:
        """Initialise topic "t", partition 0 for the group."""
        return asked(Made(), "CreateTopics", "t", TOPIC).answered("Initialize")

    @pytest.mark.rule("INV-16")
    def test_an_assignment_is_the_target_at_its_epoch(self) -> None:
        assert not found(HeartbeatTargets(), beat(computed(self.ready(), 2, 0), 2, 0, subscribed=("t",)))
        assert found(HeartbeatTargets(), beat(computed(self.ready(), 2, 0), 2, 1, subscribed=("t",))) == ["INV-16"]
        assert found(HeartbeatTargets(), beat(computed(self.ready(), 2, 0), 3, 0, subscribed=("t",))) == ["INV-16"]
        assert found(HeartbeatTargets(), beat(computed(self.ready(), 2, 0, member="B"), 2, 0)) == ["INV-16"]

    @pytest.mark.rule("INV-16")
    def test_nothing_is_left_out_but_what_is_gone_or_not_subscribed_to(self) -> None:
        assert found(HeartbeatTargets(), beat(computed(self.ready(), 2, 0), 2, subscribed=("t",))) == ["INV-16"]
        assert not found(HeartbeatTargets(), beat(computed(self.ready(), 2, 0), 2, subscribed=("u",)))
        gone = asked(computed(self.ready(), 2, 0), "DeleteTopics", "t", TOPIC)
        assert not found(HeartbeatTargets(), beat(gone, 2, subscribed=("t",)))

    @pytest.mark.rule("INV-16")
    def test_a_member_that_joined_since_has_nothing_yet(self) -> None:
        made = computed(self.ready(), 2, 0)
        assert not found(HeartbeatTargets(), beat(made, 2, subscribed=("t",), sent_epoch=0))
        assert not found(HeartbeatTargets(), beat(made, 2, subscribed=("t",)))
        made = computed(self.ready(), 2, 0)
        before = len(made.history.events) - 1
        assert found(HeartbeatTargets(), beat(made, 2, subscribed=("t",), sent_epoch=0, asked=before)) == ["INV-16"]
        made = computed(self.ready(), 2, 0)
        assert found(HeartbeatTargets(), beat(made, 2, 1, subscribed=("t",), sent_epoch=0)) == ["INV-16"]

    @pytest.mark.rule("INV-15")
    def test_a_target_names_what_was_initialised_for_its_group(self) -> None:
        assert found(HeartbeatTargets(), computed(self.ready(), 2, 1)) == ["INV-15"]
        made = Made()
        made.share = SHARE._replace(group_id="another")
        assert found(HeartbeatTargets(), computed(made.answered("Initialize"), 2, 0)) == ["INV-15"]


class TestGroupsApart:
    @pytest.mark.rule("INV-15")
    def test_settings_are_the_clusters_or_asked_for_by_name(self) -> None:
        def limits(limit: int, target: str = "g") -> Made:
            made = Made()
            made.add(Configured, (("group.share.record.lock.duration.ms", str(LOCK_MS)),))
            asked(made, "IncrementalAlterConfigs", target, "share.delivery.count.limit=3")
            made.add(LimitsSeen, 1, "g", limit, LOCK_MS, 2000)
            return made

        assert not found(OwnSettings(), limits(5))
        assert not found(OwnSettings(), limits(3))
        assert found(OwnSettings(), limits(4)) == ["INV-15"]
        assert found(OwnSettings(), limits(3, target="another")) == ["INV-15"]

    @pytest.mark.rule("INV-15")
    def test_a_count_that_is_written_is_that_of_a_delivery_to_the_group(self) -> None:
        batch = (0, 0, STATE_AVAILABLE, 2)
        assert not found(OwnDeliveries(), Made().locks("A", 0, count=2).writes(0, batch))
        assert found(OwnDeliveries(), Made().locks("A", 0, count=1).writes(0, batch)) == ["INV-15"]
        made = Made()
        made.share = SHARE._replace(group_id="another")
        made.locks("A", 0, count=2).share = SHARE
        assert found(OwnDeliveries(), made.writes(0, batch)) == ["INV-15"]
