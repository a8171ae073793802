"""Runs experiments from `catalogue`: those of one shape one after another, each with its own topic.

`python -m tests.chaos.stores.runner OUT SEED NAME…` is the part of `python -m tests.chaos` that runs at the same time
as its clusters: an experiment's outcome and histories go to OUT/<shape>/<play>, and a line to standard output.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.chaos.outcome import BAD, GOOD, Outcome, write_outcome
from tests.chaos.signals import exit_on_sigterm
from tests.chaos.stores.catalogue import Shape, StoreExperiment, select
from tests.chaos.stores.deployment import StoreDeployment
from tests.chaos.stores.trial import StoreTrial, StoreVerdict, judge_kept, open_on

#: The driver's name in outcomes of these experiments: they run as processes, whatever the driver.
STORES: Final = "stores"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one experiment: `failure` is the reason why it could not be judged. Its histories are in
    `folder`."""

    name: str
    folder: Path
    verdict: StoreVerdict | None
    failure: str = ""
    seed: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it ran to its end and nothing was violated."""
        return self.verdict is not None and not self.verdict.verdict.violations

    def __str__(self) -> str:
        if self.verdict is None:
            return f"{self.name}: {self.failure}; histories and logs: {self.folder}"
        found = self.verdict.verdict.violations
        words = [f"{self.name}: {self.verdict}", *found[:20]]
        return "\n".join(
            words if not found else [*words, f"{len(found)} violations; histories and logs: {self.folder}"]
        )


def run(
    experiments: Iterable[StoreExperiment],
    folder: Path,
    seed: int,
    say: Callable[[Result], None] = print,
    *,
    keep: bool = False,
) -> list[Result]:
    """Run experiments; `say` is called with each result. A deployment on which an experiment failed is not used again.

    Histories and logs of a shape are removed when all its experiments passed, unless they are to be kept.
    """
    results = []
    for shape, group in groupby(experiments, key=lambda experiment: experiment.shape):
        mine = []
        for result in _on_shape(shape, list(group), folder / shape.name, seed):
            say(result)
            mine.append(result)
        if not keep and all(result.passed for result in mine):
            shutil.rmtree(folder / shape.name, ignore_errors=True)
        results += mine
    return results


def _on_shape(shape: Shape, experiments: list[StoreExperiment], folder: Path, seed: int) -> Iterator[Result]:
    with ExitStack() as stack:
        deployment: StoreDeployment | None = None
        for number, experiment in enumerate(experiments):
            began, mine = time.monotonic(), folder / experiment.play.__name__
            mine.mkdir(parents=True)
            chance = random.Random(f"{seed}-{experiment.name}").randrange(1_000_000)
            verdict, failure = None, ""
            try:
                if deployment is None:
                    nodes = folder / f"nodes-{number}"
                    deployment = stack.enter_context(open_on(nodes, shape.make_store, shape.min_insync_replicas))
                verdict = _play(deployment, experiment, mine, chance)
            except Exception as error:  # any error is this experiment's result, and the others go on
                failure = f"{type(error).__name__}: {error}"
            result = Result(experiment.name, mine, verdict, failure, chance, round(time.monotonic() - began, 1))
            yield result
            if not result.passed:
                deployment = None
                stack.close()


def _play(deployment: StoreDeployment, experiment: StoreExperiment, folder: Path, chance: int) -> StoreVerdict:
    with StoreTrial(deployment, folder, chance, f"work-{experiment.play.__name__}".replace("_", "-")) as trial:
        experiment.play(trial)
        trial.finish()
    return trial.judged()


def outcome_of(experiment: StoreExperiment, result: Result) -> Outcome:
    """Return a result as an outcome for the reports of `python -m tests.chaos`."""
    whole = Outcome(
        experiment.name,
        STORES,
        experiment.sentence,
        experiment.shows,
        result.seed,
        GOOD,
        result.failure,
        result.seconds,
    )
    return judged(whole, result.folder)


def judged(outcome: Outcome, folder: Path) -> Outcome:
    """Return the outcome with the verdict on the histories in a folder. A failed experiment stays BAD whatever they
    show."""
    found = judge_kept(folder)
    return outcome.with_verdict(
        found.verdict,
        BAD if found.verdict.violations or outcome.reason else GOOD,
        found.allowed_lost,
        found.allowed_accepted_twice,
    )


def main(words: list[str]) -> int:
    """Run the named experiments; return 0 whatever their results, which are in their outcomes."""
    exit_on_sigterm()
    out, seed, *names = words
    experiments = {experiment.name: experiment for experiment in select(names)}

    def report(result: Result) -> None:
        outcome = outcome_of(experiments[result.name], result)
        write_outcome(Path(out), outcome)
        print(outcome.line(), flush=True)

    run(experiments.values(), Path(out), int(seed), report, keep=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
