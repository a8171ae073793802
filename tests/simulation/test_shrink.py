"""The shrinker: it keeps exactly the parts that the failure needs."""

from __future__ import annotations

import pytest

from tests.simulation.faults.network import BreakStreams
from tests.simulation.faults.store import RestartStore, Unreachable
from tests.simulation.plan import Plan, Step
from tests.simulation.shrink import WORK_MS_MIN, Shrinker
from tests.simulation.world import Shape

CREW = ("producer0", "consumer0", "consumer1")
PLAN = Plan(
    Shape.two(),
    12_000,
    (
        *(Step(number * 1_000, Unreachable(number)) for number in range(1, 10)),
        Step(10_000, RestartStore(1, 100)),
        Step(11_000, BreakStreams(1.0, 1, 20)),
    ),
)


def kinds(plan: Plan) -> list[str]:
    return [type(step.fault).__name__ for step in plan.steps]


def test_faults_workloads_and_time_that_are_not_needed_go() -> None:
    def broken(plan: Plan) -> bool:
        return "RestartStore" in kinds(plan) and "consumer1" not in plan.without

    shrinker = Shrinker(broken)
    shortest = shrinker.shrink(PLAN, CREW)
    assert kinds(shortest) == ["RestartStore"]
    assert shortest.without == ("producer0", "consumer0")
    assert 10_000 < shortest.work_ms <= 10_000 + WORK_MS_MIN
    assert shrinker.tries < 60


def test_two_faults_that_only_break_it_together_both_stay() -> None:
    def broken(plan: Plan) -> bool:
        return {step.fault for step in plan.steps} >= {Unreachable(2), Unreachable(7)}

    assert [step.fault for step in Shrinker(broken).shrink(PLAN, CREW).steps] == [Unreachable(2), Unreachable(7)]


def test_what_breaks_without_any_fault_has_none_left() -> None:
    shortest = Shrinker(lambda plan: True).shrink(PLAN, CREW)
    assert (shortest.steps, shortest.without) == ((), CREW)
    assert shortest.work_ms < 2 * WORK_MS_MIN


def test_a_plan_that_cannot_be_shortened_stays() -> None:
    assert Shrinker(lambda plan: plan == PLAN).shrink(PLAN, CREW) == PLAN


@pytest.mark.parametrize("tries_max", [0, 1, 5])
def test_the_number_of_runs_is_bounded(tries_max: int) -> None:
    shrinker = Shrinker(lambda plan: True, tries_max)
    shrinker.shrink(PLAN, CREW)
    assert shrinker.tries <= tries_max
