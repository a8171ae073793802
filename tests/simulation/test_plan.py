"""Plans: the same seed gives the same plan, JSON contains all of it, and its parts do not depend on each other."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.simulation.faults.catalogue import KINDS
from tests.simulation.plan import Plan, Step

PLANS = [Plan.draw(seed) for seed in range(400)]


def test_a_seed_always_gives_the_same_plan() -> None:
    assert [Plan.draw(seed) for seed in range(50)] == PLANS[:50]


def test_a_plan_comes_back_from_its_json() -> None:
    for plan in PLANS:
        again = Plan.from_json(json.loads(plan.text()))
        assert again == plan
        assert not again.drawn
        assert again.text() == plan.text()


def test_every_kind_of_fault_is_drawn_and_says_what_it_does() -> None:
    drawn = Counter(type(step.fault).__name__ for plan in PLANS for step in plan.steps)
    assert drawn.keys() == KINDS.keys()
    words = {str(step.fault) for plan in PLANS for step in plan.steps}
    assert all(len(text) > 15 and " object at " not in text for text in words)


def test_some_runs_have_no_fault_and_some_have_many() -> None:
    counts = Counter(len(plan.steps) for plan in PLANS)
    assert counts[0] >= 10
    assert max(counts) >= 9
    assert sum(counts[number] for number in (1, 2, 3, 4)) > len(PLANS) / 2


def test_faults_strike_while_clients_work_in_order() -> None:
    for plan in PLANS:
        times = [step.at_ms for step in plan.steps]
        assert times == sorted(times)
        assert all(0 < at_ms < plan.work_ms for at_ms in times)


def test_a_shorter_plan_loses_what_would_strike_later() -> None:
    plan = max(PLANS, key=lambda each: len(each.steps))
    middle = plan.steps[3].at_ms + 1
    assert plan.cut(middle).steps == tuple(step for step in plan.steps if step.at_ms < middle)
    assert plan.cut(middle).work_ms == middle


def test_a_plan_is_described_with_its_faults_in_order() -> None:
    plan = max(PLANS, key=lambda each: len(each.steps))
    in_words = plan.in_words()
    assert len(in_words) == 2 + len(plan.steps)
    assert str(plan.steps[0].fault) in in_words[2]


def test_an_unknown_fault_is_named_with_those_there_are() -> None:
    said = PLANS[0].as_json()
    said["steps"] = [[100, "Earthquake", {}]]
    with pytest.raises(ValueError, match=r"no fault 'Earthquake'; expected one of .*Kill"):
        Plan.from_json(said)


def test_steps_are_values() -> None:
    fault = next(plan for plan in PLANS if plan.steps).steps[0].fault
    assert Step(5, fault) == Step(5, fault)
