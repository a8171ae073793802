"""Tests the checkers of deleted and altered groups: bad histories are found, and the most similar good ones pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.checkers.group_changes import ChangesEnd, ConfirmedChanges, DeletedGroups
from tests.simulation.checkers.objects import Objects
from tests.simulation.checkers.state_epochs import StateEpochs
from tests.simulation.checkers.targets import HeartbeatTargets
from tests.simulation.coordinator_events import GroupDecided, TargetComputed
from tests.simulation.final import GroupEnd, LogEnd
from tests.simulation.history import Administered, FaultStruck, GroupListed
from tests.simulation.leader_events import ObjectDropped, ObjectMade
from tests.simulation.made import SHARE, TOPIC, Made, found

FAIL_OVER = "fail-over of the store, 1 replicas 300 ms behind"
GROUP = ("DeleteGroups", "")
OFFSETS = ("DeleteShareGroupOffsets", "t")
TO_7 = ("AlterShareGroupOffsets", "t/0 7")


def begun() -> Made:
    """Create a topic, and a group's state for it."""
    made = Made()
    made.add(Administered, "CreateTopics", "t", TOPIC, "", 0)
    return made.at(1).answered("Initialize", state_epoch=2)


def ends(made: Made, change: tuple[str, str], asked_ms: int = 5, error: str = "") -> Made:
    """Respond to a change to the group."""
    made.add(Administered, change[0], "g", change[1], error, asked_ms)
    return made


def struck(made: Made, fault: str = "SIGKILL of b") -> Made:
    """Add a fault that starts and ends at once."""
    made.add(FaultStruck, fault)
    made.add(FaultStruck, fault, True)
    return made


def decided(made: Made, is_made: bool, epoch: int, members: int = 0) -> Made:
    """Create or delete the group."""
    made.add(GroupDecided, 1, "g", is_made, epoch, members)
    return made


def was_listed(made: Made, there: bool, asked: int | None = None) -> Made:
    """Let a client learn whether the group exists."""
    made.add(GroupListed, "ListGroups", "g", there, len(made.history.events) if asked is None else asked)
    return made


class TestCausesOfStateEpochs:
    @pytest.mark.rule("INV-12")
    @pytest.mark.parametrize("change", [GROUP, OFFSETS, TO_7])
    def test_an_epoch_rises_once_a_change_was_asked_for_and_never_falls(self, change: tuple[str, str]) -> None:
        assert not found(StateEpochs(), ends(begun().at(9).reads(0, state_epoch=3), change, 9))
        assert found(StateEpochs(), ends(begun().at(9).reads(0, state_epoch=3), change, 10)) == ["INV-12"]
        assert found(StateEpochs(), ends(begun().at(9).reads(0, state_epoch=1), change, 9)) == ["INV-12"]

    @pytest.mark.rule("INV-12")
    @pytest.mark.parametrize("change", [("DeleteShareGroupOffsets", "u"), ("AlterShareGroupOffsets", "t/1 7")])
    def test_a_change_of_something_else_is_no_cause(self, change: tuple[str, str]) -> None:
        assert found(StateEpochs(), ends(begun().at(9).reads(0, state_epoch=3), change)) == ["INV-12"]

    def test_an_answer_with_a_former_epoch_was_overtaken(self) -> None:
        made = ends(begun(), TO_7).at(9).answered("Initialize", 7, state_epoch=3)
        assert not found(StateEpochs(), made.writes(1, state_epoch=2, asked=2))
        made = ends(begun(), TO_7).at(9).answered("Initialize", 7, state_epoch=3)
        assert found(StateEpochs(), made.writes(1, state_epoch=2)) == ["INV-12"]

    @pytest.mark.rule("INV-15")
    def test_state_is_deleted_only_for_what_was_asked(self) -> None:
        assert not found(StateEpochs(), ends(begun().at(9).answered("Delete"), GROUP))
        assert not found(StateEpochs(), ends(begun().at(9).answered("Delete"), OFFSETS))
        for change in (TO_7, ("DeleteShareGroupOffsets", "u")):
            assert found(StateEpochs(), ends(begun().at(9).answered("Delete"), change)) == ["INV-15"]
        assert found(StateEpochs(), ends(begun().at(9).answered("Delete"), GROUP, 10)) == ["INV-15"]

    @pytest.mark.rule("INV-15")
    def test_what_was_refused_is_no_cause_unless_an_answer_may_have_been_lost(self) -> None:
        refused = ends(begun().at(9).answered("Delete"), GROUP, error="NON_EMPTY_GROUP")
        assert found(StateEpochs(), refused) == ["INV-15"]
        assert not found(StateEpochs(), ends(struck(begun()).at(9).answered("Delete"), GROUP, error="NON_EMPTY_GROUP"))
        assert not found(StateEpochs(), ends(begun().at(9).answered("Delete"), GROUP, error="REQUEST_TIMED_OUT"))

    @pytest.mark.rule("INV-9")
    def test_a_state_begins_where_an_alteration_says(self) -> None:
        assert not found(StateEpochs(), ends(begun().at(9).answered("Initialize", 7, state_epoch=3), TO_7))
        assert found(StateEpochs(), ends(begun().at(9).answered("Initialize", 8, state_epoch=3), TO_7)) == ["INV-9"]

    @pytest.mark.rule("INV-7")
    def test_an_object_is_replaced_for_a_change_of_its_state(self) -> None:
        made = begun().at(30_000)
        made.add(ObjectMade, 1, SHARE, 1, 7, 1)
        made.add(ObjectDropped, 1, SHARE, 1, 7, "state_replaced")
        assert found(Objects(), made) == ["INV-7"]
        assert not found(Objects(), ends(made, TO_7))

    @pytest.mark.rule("INV-15")
    def test_what_was_deleted_is_assigned_only_when_it_is_initialised_again(self) -> None:
        target = (("A", ((TOPIC, 0),)),)
        made = begun().answered("Delete")
        made.add(TargetComputed, 1, "g", 3, target)
        assert found(HeartbeatTargets(), made) == ["INV-15"]
        made = begun().answered("Delete").answered("Initialize", state_epoch=3)
        made.add(TargetComputed, 1, "g", 3, target)
        assert not found(HeartbeatTargets(), made)


class TestConfirmedChanges:
    @pytest.mark.parametrize(("change", "rule"), [(GROUP, "GC-93"), (OFFSETS, "GC-98")])
    def test_what_a_confirmed_deletion_names_is_deleted(self, change: tuple[str, str], rule: str) -> None:
        assert found(ConfirmedChanges(), ends(begun().at(9), change)) == [rule]
        assert not found(ConfirmedChanges(), ends(begun().at(9).answered("Delete"), change))
        assert not found(ConfirmedChanges(), ends(begun().at(9), change, error="REQUEST_TIMED_OUT"))
        assert not found(ConfirmedChanges(), ends(begun().at(9), ("DeleteShareGroupOffsets", "u")))

    def test_what_began_while_it_was_asked_for_belongs_to_the_next_group(self) -> None:
        made = begun().at(6).answered("Delete").at(7).answered("Initialize", state_epoch=3)
        assert not found(ConfirmedChanges(), ends(made.at(9), GROUP))

    def test_a_confirmed_alteration_has_begun_the_state_there_at_a_higher_epoch(self) -> None:
        made = ends(begun().at(9).answered("Initialize", 7, state_epoch=3), TO_7)
        assert not found(ConfirmedChanges(), made)
        for start, epoch in ((6, 3), (7, 2)):
            made = ends(begun().at(9).answered("Initialize", start, state_epoch=epoch), TO_7)
            assert found(ConfirmedChanges(), made) == ["GC-103"]
        assert found(ConfirmedChanges(), ends(begun().at(9), TO_7)) == ["GC-103"]
        assert not found(ConfirmedChanges(), ends(begun().at(9), TO_7, error="LEADER_NOT_AVAILABLE"))

    def test_of_a_topic_that_may_be_deleted_and_of_a_lost_tail_nothing_is_promised(self) -> None:
        for change in (GROUP, OFFSETS, TO_7):
            made = begun().at(9)
            made.add(Administered, "DeleteTopics", "t", TOPIC, "REQUEST_TIMED_OUT", 9)
            assert not found(ConfirmedChanges(), ends(made, change))
            assert not found(ConfirmedChanges(), ends(struck(begun().at(9), FAIL_OVER), change))
            assert found(ConfirmedChanges(), ends(struck(begun().at(9)), change))


class TestDeletedGroups:
    def test_a_deleted_group_is_not_there_until_it_is_made_again(self) -> None:
        made = ends(decided(begun(), False, 2), GROUP)
        assert not found(DeletedGroups(), was_listed(made, False))
        assert found(DeletedGroups(), was_listed(made, True)) == ["GC-93"]
        assert not found(DeletedGroups(), was_listed(ends(decided(begun().at(9), True, 3), GROUP), True))

    def test_one_that_listed_before_may_have_seen_it(self) -> None:
        assert not found(DeletedGroups(), was_listed(ends(begun(), GROUP), True, asked=1))

    def test_a_group_goes_without_members_only(self) -> None:
        assert found(DeletedGroups(), decided(begun(), False, 2, members=1)) == ["GC-93"]

    @pytest.mark.rule("INV-12")
    def test_one_that_is_made_again_goes_on_with_the_epochs_of_the_former(self) -> None:
        made = begun().group(5, {})
        assert not found(DeletedGroups(), decided(decided(made, False, 5), True, 6))
        assert found(DeletedGroups(), decided(decided(begun().group(5, {}), False, 5), True, 5)) == ["INV-12"]
        lost = struck(begun().group(5, {}), FAIL_OVER)
        assert not found(DeletedGroups(), decided(decided(lost, False, 5), True, 1))

    @pytest.mark.rule("INV-12")
    def test_so_do_its_members(self) -> None:
        made = begun().beats("A", 0, 5)
        assert found(DeletedGroups(), decided(made, False, 5).beats("B", 0, 5)) == ["INV-12"]
        made = decided(begun().beats("A", 0, 5), False, 5).beats("B", 0, 6)
        assert not found(DeletedGroups(), made.beats("A", 5, 5, asked=0))


class TestChangesEnd:
    def rests(self, group: GroupEnd | None, **more: Any) -> Made:
        """Set the final state: the group and its state, the same after a restart."""
        made = begun().rests(3)
        groups = {} if group is None else {"g": group}
        made.final = replace(made.final, **{"groups": groups, "groups_replayed": groups, **more})
        return made

    def test_a_group_and_its_state_agree(self) -> None:
        assert not found(ChangesEnd(), self.rests(GroupEnd(3, initialized=((TOPIC, 0),))))
        assert not found(ChangesEnd(), self.rests(GroupEnd(3, initializing=((TOPIC, 0, 7, 3),))))
        assert found(ChangesEnd(), self.rests(None)) == ["GC-107"]
        assert found(ChangesEnd(), self.rests(GroupEnd(3))) == ["GC-107"]
        both = ((TOPIC, 0), (TOPIC, 1))
        assert found(ChangesEnd(), self.rests(GroupEnd(3, initialized=both))) == ["GC-107"]

    def test_what_a_lost_tail_took_needs_no_other_cause(self) -> None:
        assert not found(ChangesEnd(), struck(self.rests(None), FAIL_OVER))

    def test_state_of_a_deleted_topic_is_for_others_to_judge(self) -> None:
        assert not found(ChangesEnd(), self.rests(None, logs={("cd" * 16, 0): LogEnd(0, 0)}))

    def test_no_change_is_under_way_for_ever(self) -> None:
        done = GroupEnd(3, initialized=((TOPIC, 0),))
        assert found(ChangesEnd(), self.rests(replace(done, under_way="DeleteGroups"))) == ["GC-108"]
        for half in (replace(done, deleting=(TOPIC,)), replace(done, dropping=True)):
            assert found(ChangesEnd(), self.rests(half)) == ["GC-107"]

    def test_an_initialisation_of_unknown_outcome_holds_a_resume_back(self) -> None:
        waits = GroupEnd(3, initializing=((TOPIC, 0, 7, 3),), deleting=("cd" * 16,))
        assert not found(ChangesEnd(), self.rests(waits))

    @pytest.mark.rule("INV-13")
    def test_a_restart_changes_no_list(self) -> None:
        done = GroupEnd(3, initialized=((TOPIC, 0),))
        assert not found(ChangesEnd(), self.rests(done, groups_replayed={"g": replace(done, epoch=4)}))
        for other in ({}, {"g": replace(done, dropping=True)}, {"g": replace(done, initialized=())}):
            assert found(ChangesEnd(), self.rests(done, groups_replayed=other)) == ["INV-13"]
