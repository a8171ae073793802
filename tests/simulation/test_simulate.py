"""A run normally ends as it should; every other way of ending is a violation with a name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

import pytest

from tests.simulation import simulate as module
from tests.simulation.checkers import Violation
from tests.simulation.faults.processes import Kill
from tests.simulation.final import Final
from tests.simulation.history import FaultStruck, History, PhaseBegan, ProcessChanged
from tests.simulation.plan import Plan, Step
from tests.simulation.sampler import Sampler
from tests.simulation.simulate import Run, judged, simulate
from tests.simulation.story import story
from tests.simulation.workload import Workload
from tests.simulation.world import Shape, World

PLAN = Plan(Shape.two(), 1_000)
KILL = Step(400, Kill("a", 100, True))


@dataclass
class Odd:
    """A workload that ends in an unusual way."""

    world: World
    name: str

    async def work(self) -> None:
        match self.name:
            case "hangs":
                await asyncio.sleep(1e6)
            case "raises":
                raise ValueError("what a client should not say")
            case "spins":
                while True:  # noqa: ASYNC110  (this is what is meant)
                    await asyncio.sleep(0)
            case "computes":
                began = time.process_time_ns()
                while time.process_time_ns() < began + 30e9:
                    pass
        while self.world.phase == "work":  # noqa: ASYNC110  (phases are polled, as all workloads do)
            await asyncio.sleep(0.1)

    async def drain(self) -> None:
        if self.name == "never drains":
            await asyncio.sleep(1e6)


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def drawn(world: World, _: Random) -> list[Workload]:
        return [Odd(world, name) for name in names]

    monkeypatch.setattr(module, "draw_crew", drawn)
    return names


def test_a_run_goes_through_its_phases_and_records_what_struck(crew: list[str]) -> None:
    crew.append("idle")
    outcome = simulate(3, replace(PLAN, steps=(KILL,)))
    assert outcome.violations == ()
    assert [each.phase for each in outcome.history.of(PhaseBegan)] == ["work", "calm", "drain", "rest"]
    assert [(each.fault, each.ended) for each in outcome.history.of(FaultStruck)] == [
        (str(KILL.fault), False),
        (str(KILL.fault), True),
    ]
    assert "killed" in {each.what for each in outcome.history.of(ProcessChanged)}
    assert outcome.crew == ("idle",)
    assert "no violations" in story(outcome)
    assert f"again: make sim SEED=3 PLAN='{outcome.plan.text()}'" in story(outcome)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hangs", "clients did not come to an end after the faults within 180 s: hangs still at it"),
        ("never drains", "clients did not drain what was left within 240 s: never drains still at it"),
        ("raises", "ValueError: what a client should not say at test_simulate.py"),
        ("spins", "time does not advance"),
    ],
)
def test_a_run_that_does_not_end_is_a_violation(crew: list[str], name: str, said: str) -> None:
    crew += ["idle", name]
    outcome = simulate(3, PLAN)
    assert [violation.rule for violation in outcome.violations] == ["INV-19"]
    assert said in outcome.violations[0].sentence
    assert said in story(outcome)


def test_a_run_that_computes_for_ever_is_ended(crew: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    crew.append("computes")
    monkeypatch.setattr(module, "REAL_S", 1.0)
    outcome = simulate(3, PLAN)
    assert outcome.rules == ("INV-19",)
    assert "RanTooLongError" in outcome.violations[0].sentence


def test_a_run_whose_sampler_fails_is_a_violation(crew: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without samples, its checkers would find no violations."""

    def fail(_: Sampler) -> None:
        raise AttributeError("what the product no longer has")

    crew.append("idle")
    monkeypatch.setattr(Sampler, "sample", fail)
    outcome = simulate(3, PLAN)
    assert outcome.rules == ("INV-19",)
    assert "AttributeError: what the product no longer has" in outcome.violations[0].sentence


def test_a_workload_that_is_left_out_does_not_work(crew: list[str]) -> None:
    crew += ["hangs", "idle"]
    assert simulate(3, replace(PLAN, without=("hangs",))).violations == ()


def test_checkers_judge_and_one_that_fails_is_named() -> None:
    class Bad:
        rules: tuple[str, ...] = ("INV-7", "INV-8")

        def check(self, history: History, final: Final) -> Iterable[Violation]:
            yield Violation("INV-8", "too many")
            raise KeyError("oops")

    found = list(judged(History(1, int), Final(), [Bad()]))
    assert [violation.rule for violation in found] == ["INV-8", "INV-7"]
    assert "its checker failed: KeyError: 'oops' at test_simulate.py" in found[1].sentence


def test_what_is_judged_is_a_run_that_ended() -> None:
    run = Run(1, PLAN)
    run.failed(AssertionError("no cluster"))
    assert run.outcome().rules == ("INV-19",)
