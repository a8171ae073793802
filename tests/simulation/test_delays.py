"""Delays in whole clusters with specific faults: a wall clock far ahead, and the death of its process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.simulation.clock import WALL_START_MS
from tests.simulation.delay_events import StateLoaded
from tests.simulation.faults.clocks import Jump
from tests.simulation.faults.processes import Kill
from tests.simulation.history import History, StateAnswered
from tests.simulation.plan import Plan, Step
from tests.simulation.shape import DELAYS, Shape
from tests.simulation.simulate import simulate

HOUR_MS = 3_600_000


def too_late(history: History) -> Iterator[int]:
    """Yield by how much (ms) a stored delay that a leader read would exceed its group's maximum delay."""
    reads: dict[tuple[object, int, int], StateAnswered] = {}
    for event in history.of(StateAnswered, StateLoaded):
        if isinstance(event, StateLoaded):
            wall_ms = WALL_START_MS + event.at_ms + event.ahead_ms
            for *_, instant_ms in reads[event.share, event.leader_epoch, event.generation].batches:
                yield instant_ms - wall_ms - event.delay_max_ms
        elif event.call == "Read" and event.code == 0:
            reads[event.share, event.leader_epoch, event.generation] = event


@pytest.mark.rule("INV-21", "INV-19")
def test_what_a_clock_an_hour_ahead_has_stored_waits_no_longer_than_the_group_allows() -> None:
    """This also holds because a run fails if it does not drain every group within a minute."""
    found: list[int] = []
    for seed in (14, 15):
        steps = (Step(800, Jump("a", HOUR_MS, 20_000)), Step(4_000, Kill("a", 300, knows_dead=True)))
        shape = replace(Shape.two(), pressures=(DELAYS,))
        outcome = simulate(seed, replace(Plan.draw(seed), shape=shape, steps=steps, work_ms=7_000))
        assert [str(violation) for violation in outcome.violations] == []
        found += too_late(outcome.history)
    assert any(late_ms > HOUR_MS / 2 for late_ms in found)
