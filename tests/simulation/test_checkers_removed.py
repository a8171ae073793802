"""Tests the checkers of members that are lost or removed: what they report, and what they accept."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.simulation.checkers.removed_members import LostGo, RemovedEnd
from tests.simulation.checkers.undisturbed import Undisturbed
from tests.simulation.faults.clients import frozen
from tests.simulation.history import FaultStruck, ProcessChanged, SessionEnded
from tests.simulation.made import Made, found
from tests.simulation.member_events import (
    ClocksRestarted,
    LossTaken,
    MemberRemoved,
    RemovalHeard,
    ReturnTaken,
    SessionOpened,
)
from tests.simulation.plan import Plan
from tests.simulation.shape import FROZEN

G = "g"


def lost(at_ms: int = 1_000, ago_ms: int = 0) -> Made:
    """Let a leader lose member A; B continues."""
    made = Made().at(at_ms)
    made.add(LossTaken, 1, G, "A", ago_ms)
    return made


@pytest.mark.rule("INV-16")
def test_a_lost_member_that_stays_is_a_fault() -> None:
    made = lost().at(4_400).group(2, {"A": 2, "B": 2})
    assert not found(LostGo(), made), "an interval and a second, and what samples are late"
    assert found(LostGo(), made.at(4_501).group(2, {"A": 2, "B": 2})) == ["INV-16"]
    assert found(LostGo(), made.at(9_000).group(2, {"A": 2, "B": 2})) == ["INV-16"], "once"


@pytest.mark.rule("INV-16")
def test_a_heartbeat_that_was_under_way_is_no_excuse_for_long() -> None:
    made = lost().at(1_900).beats("A", 2, 2)
    made.at(5_300).group(2, {"A": 2})
    assert not found(LostGo(), made)
    assert found(LostGo(), made.at(5_500).group(2, {"A": 2})) == ["INV-16"]


_SAVES: dict[str, Callable[[Made], object]] = {
    "a heartbeat": lambda made: made.at(2_500).beats("A", 2, 2),
    "a heartbeat whose caller went": lambda made: made.at(2_500).beats("A", 2, 0, code=-2),
    "its leave": lambda made: made.at(1_500).beats("A", -1, -1),
    "a new session": lambda made: made.add(ReturnTaken, 1, G, "A"),
    "clocks that began again": lambda made: made.add(ClocksRestarted, 1),
    "its end": lambda made: made.at(3_000).group(3, {"B": 2}),
    "another coordinator": lambda made: made.successor(),
    "a fault": lambda made: made.add(FaultStruck, "a cut"),
}


@pytest.mark.rule("INV-16")
@pytest.mark.parametrize("why", _SAVES)
def test_who_may_stay(why: str) -> None:
    made = lost()
    _SAVES[why](made)
    assert not found(LostGo(), made.at(9_000).group(4, {"A": 2, "B": 2}))


@pytest.mark.rule("INV-16")
def test_a_refused_heartbeat_saves_no_member_nor_one_elsewhere_nor_a_frozen_client() -> None:
    made = lost()
    made.add(FaultStruck, "client 3 is frozen for 9000 ms")
    made.at(2_500).beats("A", 2, 0, code=25).beats("B", 2, 2)
    assert found(LostGo(), made.at(6_000).group(2, {"A": 2, "B": 2})) == ["INV-16"]


def removed(member_epoch: int = 2) -> Made:
    """Open a session for member A at a leader, then remove A."""
    made = Made().at(1_000)
    made.add(SessionOpened, 1, G, "A", member_epoch)
    made.at(5_000).add(MemberRemoved, 1, G, "A", 3)
    return made


@pytest.mark.rule("INV-16")
def test_a_session_that_outlives_its_member_is_a_fault() -> None:
    made = removed().at(6_400).group(3, {})
    assert not found(RemovedEnd(), made)
    assert found(RemovedEnd(), made.at(6_600).group(3, {})) == ["INV-16"]


_ENDS: dict[str, Callable[[Made], object]] = {
    "it ended": lambda made: made.add(SessionEnded, 1, G, "A"),
    "its leader died": lambda made: made.add(ProcessChanged, "killed", 1),
    "it was replaced by a later life": lambda made: (
        made.beats("A", 0, 4), made.add(SessionOpened, 1, G, "A", 4, True), made.add(SessionEnded, 1, G, "A"),
    ),
    "a fault": lambda made: made.add(FaultStruck, "a cut"),
}  # fmt: skip


@pytest.mark.rule("INV-16")
@pytest.mark.parametrize("why", _ENDS)
def test_what_is_no_session_that_stays(why: str) -> None:
    made = removed()
    _ENDS[why](made)
    assert not found(RemovedEnd(), made.at(9_000).group(3, {}))


@pytest.mark.rule("INV-16")
def test_a_client_that_names_no_epoch_keeps_its_session() -> None:
    assert not found(RemovedEnd(), removed(member_epoch=0).at(9_000).group(3, {}))


@pytest.mark.rule("INV-16")
def test_the_end_that_is_reported_after_a_beginning_is_that_of_the_session_before() -> None:
    made = Made()
    made.add(SessionOpened, 1, G, "A", 2)
    made.add(SessionOpened, 1, G, "A", 2, True)
    made.add(SessionEnded, 1, G, "A")
    made.at(5_000).add(MemberRemoved, 1, G, "A", 3)
    assert found(RemovedEnd(), made.at(7_000).group(3, {})) == ["INV-16"]


@pytest.mark.rule("INV-16")
@pytest.mark.parametrize("joined", [True, False])
def test_an_order_that_ends_a_session_of_a_later_life_is_a_fault(joined: bool) -> None:
    made = removed()
    made.add(SessionEnded, 1, G, "A")
    made.add(RemovalHeard, 1, G, "A", 3, True)
    assert not found(RemovedEnd(), made)
    if joined:
        made.beats("A", 0, 4)
    made.add(SessionOpened, 1, G, "A", 4)
    made.add(RemovalHeard, 1, G, "A", 3, False)
    assert not found(RemovedEnd(), made)
    made.add(SessionEnded, 1, G, "A")
    made.add(RemovalHeard, 1, G, "A", 3, True)
    assert found(RemovedEnd(), made) == (["INV-16"] if joined else [])


def test_a_fault_shows_for_a_while_after_its_end() -> None:
    made = Made().at(1_000)
    made.add(FaultStruck, "a cut")
    made.at(2_000).add(FaultStruck, "a cut", True)
    made.at(20_000).add(FaultStruck, "another")
    calm = Undisturbed(made.history)
    for first_ms, last_ms, none in ((0, 999, True), (500, 1_500, False), (7_000, 7_500, False), (8_001, 19_999, True)):
        assert calm.between(first_ms, last_ms) is none
    assert not calm.between(9_000, 20_000)


def test_clients_are_frozen_in_some_runs_and_often_nothing_else_befalls_these() -> None:
    plans: list[Any] = [plan for seed in range(200) if FROZEN in (plan := Plan.draw(seed)).shape.pressures]
    standing = [[type(step.fault).__name__ == "PauseClient" for step in plan.steps] for plan in plans]
    assert all(sum(each) >= 3 for each in standing)
    assert 0 < sum(all(each) for each in standing) < len(plans)
    assert len(frozen(Random("any"))) >= 3
