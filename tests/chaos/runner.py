"""Runs experiments one after another on one deployment, and writes each one's outcome to a file.

The experiments of a run share a cluster, as users share a real one; each has its own topic and group. If an experiment
ends unexpectedly, the next one gets a new cluster.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.chaos.deployment import Deployment, Topology, Unsupported, open_deployment
from tests.chaos.experiment import SETTINGS
from tests.chaos.experiments.definition import Definition
from tests.chaos.history import read_history
from tests.chaos.outcome import BAD, GOOD, OUTCOME_FILE, SKIPPED, Outcome, read_outcome, write_outcome
from tests.chaos.stores import runner as stores
from tests.chaos.trial import Trial
from tests.chaos.verdict import judge_history

#: The topologies to try, in order: some drivers have no Sentinel or no replicas.
TOPOLOGIES: Final = (Topology(sentinels=3), Topology(), Topology(store_replicas=0))
#: Added to the settings of the older experiments: a session that ends within an experiment, a persister that gives up
#: before a client does, and the maximum delivery limit, because faults use up deliveries.
RUN_SETTINGS: Final = {
    **SETTINGS,
    "group.share.session.timeout.ms": "6000",
    "persister.operation.timeout.ms": "4000",
    "group.share.delivery.count.limit": "10",
}
NOISE_FILE: Final = "noise.txt"
_NOISE: Final = ("Traceback", "never retrieved", '"exception"', "never awaited")

Open = Callable[[str, Path], Deployment]
Say = Callable[[str], None]


def open_richest(driver: str, folder: Path) -> Deployment:
    """Return the first of TOPOLOGIES that the driver can start here. Raises Unsupported with the last reason."""
    reason = ""
    for topology in TOPOLOGIES:
        try:
            return open_deployment(driver, folder, topology, RUN_SETTINGS)
        except Unsupported as error:
            reason = str(error)
    raise Unsupported(reason)


class Runner:
    """One run: a driver, a seed, a folder for all results."""

    def __init__(self, driver: str, seed: int, out: Path, say: Say, opened: Open = open_richest) -> None:
        self.driver = driver
        self.seed = seed
        self.out = out
        self._say = say
        self._open = opened
        self._stack = ExitStack()
        self._deployment: Deployment | None = None
        self._noise: set[str] = set()

    def run(self, definitions: Sequence[Definition]) -> list[Outcome]:
        """Run every experiment; each one's outcome is also written to its folder. Does not raise what an experiment
        raised."""
        outcomes: list[Outcome] = []
        try:
            for definition in definitions:
                outcome = self._one(definition)
                outcomes.append(outcome)
                write_outcome(self.out, outcome)
                self._say(outcome.line())
                if outcome.result == BAD:
                    self._away()
        finally:
            self._away()
        return outcomes

    def _one(self, definition: Definition) -> Outcome:
        began = time.monotonic()
        seed = self.seed + zlib.crc32(definition.name.encode()) % 1_000_000
        folder = self.out / definition.name
        folder.mkdir(parents=True)
        outcome = Outcome(definition.name, self.driver, definition.sentence, definition.shows, seed, GOOD)
        try:
            deployment = self._running()
            with Trial(deployment, folder, seed, f"chaos-{definition.name}", definition.load) as trial:
                definition.run(trial)
                trial.finish()
        except Unsupported as error:
            return replace(outcome, result=SKIPPED, reason=str(error))
        except Exception as error:  # any error is this experiment's outcome; the others continue
            outcome = replace(outcome, result=BAD, reason=f"{type(error).__name__}: {error}")
        self._keep_noise(folder)
        return judged(replace(outcome, seconds=round(time.monotonic() - began, 1)), folder, definition)

    def _running(self) -> Deployment:
        if self._deployment is None:
            opened = self._open(self.driver, self.out)
            self._deployment = self._stack.enter_context(opened)
        return self._deployment

    def _away(self) -> None:
        self._deployment = None
        self._noise.clear()
        self._stack.close()

    def _keep_noise(self, folder: Path) -> None:
        """Write to a file the lines of the services' logs that no fault explains and that no earlier experiment had."""
        if self._deployment is None:
            return
        found = [line for line in _noisy(self._deployment.logs()) if line not in self._noise]
        self._noise.update(found)
        (folder / NOISE_FILE).write_text("".join(f"{line}\n" for line in found))


def _noisy(logs: dict[str, str]) -> Iterator[str]:
    for name, said in logs.items():
        for line in said.splitlines():
            if any(word in line for word in _NOISE):
                yield f"{name}: {line}"


def judged(outcome: Outcome, folder: Path, definition: Definition) -> Outcome:
    """Return the outcome with the verdict on the histories in a folder. A failed experiment stays BAD whatever they
    show."""
    events = read_history(sorted(folder.glob("*.jsonl")))
    verdict = judge_history(events, definition.checks, measured=definition.measures_recovery)
    noise = folder / NOISE_FILE
    lines = noise.read_text().splitlines() if noise.exists() else []
    violations = (*verdict.violations, *(f"log of {line[:300]}" for line in lines))
    result = BAD if violations or outcome.reason else GOOD
    return replace(outcome, verdict=replace(verdict, violations=violations), result=result)


def judge_again(out: Path, catalogue: Iterable[Definition]) -> list[Outcome]:
    """Judge what a run left in its folder, with the current checkers. Raises ValueError if there is nothing."""
    kept = sorted(out.rglob(OUTCOME_FILE), key=lambda path: path.stat().st_mtime)
    if not kept:
        raise ValueError(f"{out} holds no outcome of an experiment")
    definitions = {definition.name: definition for definition in catalogue}
    return [_judged_again(read_outcome(path), path.parent, definitions) for path in kept]


def _judged_again(outcome: Outcome, folder: Path, definitions: Mapping[str, Definition]) -> Outcome:
    if outcome.result == SKIPPED:
        return outcome
    if outcome.driver == stores.STORES:
        return stores.judged(outcome, folder)
    return judged(outcome, folder, definitions[outcome.name])
