"""Runs experiments of `catalogue`: those of one shape one after the other, each with a topic of its own."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.chaos.stores.catalogue import Shape, StoreExperiment
from tests.chaos.stores.deployment import StoreDeployment
from tests.chaos.stores.trial import StoreTrial, StoreVerdict, open_on


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one experiment: `failure` says why it could not be judged. Its histories lie in `folder`."""

    name: str
    folder: Path
    verdict: StoreVerdict | None
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Played to its end, and nothing violated."""
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
    experiments: Iterable[StoreExperiment], folder: Path, seed: int, say: Callable[[str], None] = print
) -> list[Result]:
    """Run experiments; `say` is told each result. A deployment on which one failed is not used again."""
    results = []
    for shape, group in groupby(experiments, key=lambda experiment: experiment.shape):
        for result in _on_shape(shape, list(group), folder / shape.name, seed):
            say(str(result))
            results.append(result)
        if all(result.passed for result in results):
            shutil.rmtree(folder / shape.name, ignore_errors=True)
    return results


def _on_shape(shape: Shape, experiments: list[StoreExperiment], folder: Path, seed: int) -> Iterator[Result]:
    with ExitStack() as stack:
        deployment: StoreDeployment | None = None
        for number, experiment in enumerate(experiments):
            mine = folder / experiment.play.__name__
            mine.mkdir(parents=True)
            try:
                if deployment is None:
                    nodes = folder / f"nodes-{number}"
                    deployment = stack.enter_context(open_on(nodes, shape.make_store, shape.min_insync_replicas))
                result = Result(experiment.name, mine, _play(deployment, experiment, mine, seed))
            except Exception as error:  # whatever it is, it is this experiment's result, and the others go on
                result = Result(experiment.name, mine, None, f"{type(error).__name__}: {error}")
            yield result
            if not result.passed:
                deployment = None
                stack.close()


def _play(deployment: StoreDeployment, experiment: StoreExperiment, folder: Path, seed: int) -> StoreVerdict:
    chance = random.Random(f"{seed}-{experiment.name}").randrange(1_000_000)
    with StoreTrial(deployment, folder, chance, f"work-{experiment.play.__name__}".replace("_", "-")) as trial:
        experiment.play(trial)
        trial.finish()
    return trial.judged()
