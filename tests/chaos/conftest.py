"""Fixtures of the experiments."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.experiment import Experiment
from tests.chaos.recovery_table import PROPERTY, Recovery

#: The variable that repeats a run: CHAOS_SEED=12345 causes the same faults at the same moments again.
SEED_VARIABLE = "CHAOS_SEED"

Begin = Callable[..., Experiment]


@pytest.fixture
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """Returns a function that starts an experiment, which ends with the test in any case. Its folder is kept if the
    test fails."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1_000_000))
    folder = Path(tempfile.mkdtemp(prefix="sharegroups-chaos-"))  # pytest would delete its own folder at a later run
    print(f"\n{request.node.name}: {SEED_VARIABLE}={seed}, histories and logs in {folder}")
    begun: list[Experiment] = []
    with ExitStack() as stack:

        def start(second: str = "", up_options: Sequence[str] = ()) -> Experiment:
            begun.append(stack.enter_context(Experiment(folder, seed, second, up_options)))
            return begun[-1]

        yield start
    if begun and all(experiment.passed for experiment in begun):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[list[Recovery]], None]:
    """Returns a function that records recovery times for the table."""

    def keep(recoveries: list[Recovery]) -> None:
        for recovery in recoveries:
            print(recovery)
            record_property(PROPERTY, list(recovery))

    return keep
