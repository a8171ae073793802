"""Judges one change in a separate process: plants it, then runs tests or simulator seeds. Prints one JSON line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from resource import RLIMIT_CPU, setrlimit
from threading import Thread
from time import process_time, sleep

import pytest

from tests.mutation.changes import Change
from tests.simulation.mutants.mutant import Edit, Mutant, plant
from tests.simulation.mutants.tried import Failures

#: A limit above the processor time of all tests and seeds. Time used by other processes does not count.
CPU_S = 400
#: A process that is idle at this many checks in a row, a second apart, is waiting for something that never happens.
IDLE_CHECKS = 60
#: The exit status of such a process.
IDLE_STATUS = 77


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot(Edit):
    """An edit at a position; `Edit`, in contrast, searches for a text that occurs once."""

    change: Change

    def apply(self, source: str) -> str:
        """Return the changed source. Raises ValueError if the file has been modified since."""
        return self.change.apply(source)


def main(arguments: Sequence[str]) -> int:
    """Judge the change; return exit status 0 if it was found, 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("change", help="the change as JSON")
    parser.add_argument("--seeds", type=int, default=0, help="play this many histories instead of running tests")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args(arguments)
    change = Change(**json.loads(options.change))
    plant(Mutant("one", str(change), (), (Spot(options.module, change.old, change.new, change=change),)))
    setrlimit(RLIMIT_CPU, (CPU_S, CPU_S))
    Thread(target=_end_when_idle, daemon=True).start()
    said = _play(options.seeds) if options.seeds else _run(options.tests)
    print(json.dumps({"found": bool(said), "said": said}))
    return 0 if said else 1


def _end_when_idle() -> None:
    idle = 0
    while idle < IDLE_CHECKS:
        before = process_time()
        sleep(1)
        idle = idle + 1 if process_time() - before < 0.002 else 0
    os._exit(IDLE_STATUS)  # pytest has captured standard output


def _run(tests: Sequence[str]) -> str:
    seen = Failures()
    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[seen])
    # A change that prevents a module from being imported counts as found: no test could run.
    broken = status in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR)
    return (seen.failed or seen.broken or ([f"pytest ended with {int(status)}"] if broken else [""]))[0]


def _play(seeds: int) -> str:
    # Imported late: the product must be imported with the change in it.
    from tests.simulation.pool import rest_collector  # noqa: PLC0415
    from tests.simulation.simulate import simulate  # noqa: PLC0415

    rest_collector()
    for seed in range(1, seeds + 1):
        outcome = simulate(seed)
        if outcome.violations:
            return f"seed {seed}: {outcome.violations[0].rule}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
