"""Plays one seed from start to end: a cluster with clients and faults; then calm, drain and rest; then the checkers
run.

A run that does not end, spins or raises is itself a violation, with everything recorded until then as its history.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import traceback
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final, TypeVar
from unittest import mock

from tests.simulation import determinism
from tests.simulation.checkers import Checker, Violation
from tests.simulation.checkers.catalogue import ALL
from tests.simulation.collect_final import collect_final
from tests.simulation.final import Final as End
from tests.simulation.history import Administered, FaultStruck, History
from tests.simulation.observer import Observer
from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan, Step
from tests.simulation.sampler import sampled
from tests.simulation.shape import REASONS_BYTES, REASONS_RANGES, SMALL_LIMITS
from tests.simulation.workload.crew import draw_crew
from tests.simulation.world import World
from tests.support.small_limits import PAGES, WIDTHS, set_small, small

T = TypeVar("T")

#: The time limits of a run's parts in virtual seconds; a part that takes longer counts as hanging.
_BEGIN_S: Final = 120.0
_CALM_S: Final = 180.0
_DRAIN_S: Final = 240.0
_END_S: Final = 360.0
#: If a run has few operations, its clients continue for at most this many samples.
_LONGER_MAX: Final = 60
#: Before anything is compared, locks expire, unconfirmed tails are confirmed and start offsets are written (PL-621).
REST_S: Final = 8.0
SAMPLE_S: Final = 0.25
#: The limit of a run in real seconds; a run takes a fraction of a second.
REAL_S: Final = 60.0
#: The rule that a run breaks if it does not end.
LIVENESS: Final = "INV-19"
#: The rule that is broken if a process logs an error or gives up, regardless of faults.
COMPLAINT: Final = "complaint"
#: Errors that correctly report a lost tail (CM-19, CM-20, CM-47).
_TRUE_WORDS: Final = (
    "shard_tail_loss_suspected",
    "log_end_jumped",
    "log_end_raised",
    "metadata_log_replaced",
)


class RanTooLongError(KeyboardInterrupt):
    """A run is still computing after a minute. A KeyboardInterrupt, since no other exception passes through an event
    loop."""


def simulate(seed: int, plan: Plan | None = None, log_lines: list[str] | None = None) -> Outcome:
    """Play a seed under its own plan, or under `plan`. `log_lines` receives what the services logged."""
    run = Run(seed, plan if plan is not None else Plan.draw(seed))
    try:
        with _bounded(), _limits(run):
            determinism.run(seed, run.main, log_lines)
    except (Exception, RanTooLongError) as error:  # from the loop itself: it spins, or would wait for ever
        run.failed(error)
    return run.outcome()


@contextmanager
def _limits(run: Run) -> Iterator[None]:
    """Apply small limits to the leaders of a run that has that pressure, and to the reasons of records."""
    if SMALL_LIMITS not in run.plan.shape.pressures:
        yield
        return
    rng = Random(f"{run.seed}/{SMALL_LIMITS}")
    with (
        mock.patch.multiple(
            "kip932.failures",
            REASONS_BYTES_MAX=REASONS_BYTES,
            FAILURES_MAX=REASONS_RANGES,
            SHORT_BYTES_MAX=20,
            _FEW=1,
        ),
        mock.patch("partition_leader.share_partition.host.LIMITS", small(rng)),
        set_small(rng, *((name,) for name in WIDTHS), *PAGES),
    ):
        yield


class Run:
    """One run; used once. It keeps nothing of its simulated world, which ends with the virtual loop."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.seed = seed
        self.plan = plan
        self.history = History(seed, int)
        self.final: End | None = None
        self.broken: list[Violation] = []
        self.crew: tuple[str, ...] = ()

    def failed(self, error: BaseException) -> None:
        """Record that the run itself failed, which no checker can detect."""
        self.final = None
        self.broken.append(Violation(LIVENESS, f"the run did not end: {_innermost(error)}"))

    def outcome(self, checkers: Sequence[Checker] = ALL) -> Outcome:
        """Return the outcome of the run, with the checkers' results."""
        history = self.history
        found = [] if self.final is None else judged(history, self.final, checkers)
        topics = {each.detail: each.target for each in history.of(Administered) if each.call == "CreateTopics"}
        violations = (*self.broken, *found)
        return Outcome(self.seed, self.plan, history, self.final or End(), violations, self.crew, topics)

    async def main(self) -> None:
        """Play the whole run on the virtual loop."""
        world = World(self.seed, self.plan.shape)
        self.history = world.history
        try:
            self.final = await self._play(world)
        except Exception as error:
            self.failed(error)
        self.broken += [Violation(COMPLAINT, each) for each in world.complaints if not self._is_true(each)]
        self.history.now_ms = int

    def _is_true(self, complaint: str) -> bool:
        """Return True if a logged error correctly reports a fault: only a fail-over loses a tail."""
        return self.plan.shape.replicas > 0 and any(words in complaint for words in _TRUE_WORDS)

    async def _play(self, world: World) -> End:
        world.observer = Observer(world)
        await _within(_BEGIN_S, self._begin(world), "the cluster did not start")
        async with sampled(world, SAMPLE_S):
            drawn = draw_crew(world, world.random("crew"))
            self.crew = tuple(each.name for each in drawn)
            world.begin("work")
            working = [each for each in drawn if each.name not in self.plan.without]
            works = [asyncio.create_task(each.work(), name=each.name) for each in working]
            await self._trouble(world)
            await self._calm(world)
            await _all(works, _CALM_S, "clients did not come to an end after the faults")
            await world.settled()
            world.begin("drain")
            # Workloads that did not work drain too: others may have used their groups, whose records would remain.
            drains = [asyncio.create_task(each.drain(), name=each.name) for each in drawn]
            await _all(drains, _DRAIN_S, "clients did not drain what was left")
            world.begin("rest")
            await asyncio.sleep(REST_S)
        return await _within(_END_S, collect_final(world), "the cluster did not come back at the end")

    async def _begin(self, world: World) -> None:
        await world.open()
        async with asyncio.TaskGroup() as group:
            for each in self.plan.shape.processes:
                group.create_task(world.start(each.name))
        await world.settled()

    async def _trouble(self, world: World) -> None:
        """Let faults strike until the work is over; those that are still active then are repaired."""
        strikes = [asyncio.create_task(_strike(world, step)) for step in self.plan.steps]
        await asyncio.sleep(self.plan.work_ms / 1000)
        for _ in range(_LONGER_MAX):
            if world.history.operations >= self.plan.operations_min:
                break
            await asyncio.sleep(SAMPLE_S)
        for strike in strikes:
            strike.cancel()
        ends = await asyncio.gather(*strikes, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _calm(self, world: World) -> None:
        """End all faults and bring every process back."""
        world.calm()
        names = [each.name for each in self.plan.shape.processes]
        async with asyncio.TaskGroup() as group:
            for name in names:
                if name not in world.processes:
                    group.create_task(world.start(name))
        world.begin("calm")


def judged(history: History, final: End, checkers: Sequence[Checker]) -> Iterator[Violation]:
    """Yield the violations that the checkers find; a checker that raises is reported under its rules."""
    for checker in checkers:
        try:
            yield from checker.check(history, final)
        except Exception as error:
            yield Violation(checker.rules[0], f"its checker failed: {_innermost(error)}")


async def _strike(world: World, step: Step) -> None:
    await asyncio.sleep(step.at_ms / 1000)
    _say(world, step, ended=False)
    try:
        await step.fault.strike(world)
    finally:
        _say(world, step, ended=True)


def _say(world: World, step: Step, ended: bool) -> None:
    world.history.add(FaultStruck(world.now_ms(), "world", str(step.fault), ended))


async def _all(tasks: list[asyncio.Task[None]], seconds: float, otherwise: str) -> None:
    """Wait for tasks. Raises their first error, or an AssertionError that names those still running after `seconds`."""
    if tasks:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        if task.done():
            task.result()
    late = [task.get_name() for task in tasks if not task.done()]
    if late:
        raise AssertionError(f"{otherwise} within {seconds:.0f} s: {', '.join(late)} still at it")


async def _within(seconds: float, work: Coroutine[Any, Any, T], otherwise: str) -> T:
    """Wait for something. Raises AssertionError if it takes longer than `seconds` of virtual time."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise AssertionError(f"{otherwise} within {seconds:.0f} s: {error}") from error


@contextmanager
def _bounded() -> Iterator[None]:
    """Inside the block, end a run that computes for longer than `REAL_S`. Only a main thread can be interrupted this
    way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise RanTooLongError(f"it still computed after {REAL_S:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, REAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _innermost(error: BaseException) -> str:
    """Return an error and the line of code that raised it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
