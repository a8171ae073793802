"""Fixtures of the experiments, and the table of recovery times at the end of a run."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from tests.chaos.experiment import Experiment, Recovery

#: Repeats a run: CHAOS_SEED=12345 makes the same faults at the same moments again.
SEED_VARIABLE = "CHAOS_SEED"
_TABLE = pytest.StashKey[list[Recovery]]()

Begin = Callable[..., Experiment]


@pytest.fixture
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """Starts an experiment; it ends with the test, whatever becomes of it. Its folder stays when it failed."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1_000_000))
    folder = Path(tempfile.mkdtemp(prefix="sharegroups-chaos-"))  # pytest's own would go with a later run's start
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
def report(pytestconfig: pytest.Config) -> Callable[[list[Recovery]], None]:
    """Keeps recovery times for the table."""

    def keep(recoveries: list[Recovery]) -> None:
        for recovery in recoveries:
            print(recovery)
        pytestconfig.stash.setdefault(_TABLE, []).extend(recoveries)

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """From the fault to the next acknowledged record, and for the partition that waited longest."""
    times: defaultdict[tuple[str, str], list[Recovery]] = defaultdict(list)
    for recovery in config.stash.get(_TABLE, []):
        times[recovery.fault, recovery.target].append(recovery)
    if not times:
        return
    terminalreporter.section("recovery, in ms")
    terminalreporter.write_line(f"{'fault':<40}{'times':>6}{'next record':>20}{'every partition':>20}")
    for (fault, target), found in times.items():
        first, all_of_them = [one.next_ms for one in found], [one.slowest_ms for one in found]
        terminalreporter.write_line(
            f"{fault + ' ' + target:<40}{len(found):>6}"
            f"{f'{median(first):.0f} / {max(first)}':>20}{f'{median(all_of_them):.0f} / {max(all_of_them)}':>20}"
        )
    terminalreporter.write_line("median / worst")
