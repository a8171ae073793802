"""One change, in a process of its own: plant it, then run tests, or seeds of the simulator. Prints one JSON line."""

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

#: More processor time than all tests and seeds take. Time that other processes use does not count.
CPU_S = 400
#: A process that was idle at so many checks in a row, each a second apart, waits for something that never comes.
IDLE_CHECKS = 60
#: The exit status of such a process.
IDLE_STATUS = 77


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot(Edit):
    """An edit at a position, whereas `Edit` searches for a text that occurs once."""

    change: Change

    def apply(self, source: str) -> str:
        """Return the changed source. Raises ValueError when the file was changed since."""
        return self.change.apply(source)


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 when the change was found, 1 when it was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("change", help="the change as JSON")
    parser.add_argument("--seeds", type=int, default=0, help="play so many histories in place of tests")
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
    # A change after which a module can no longer be imported counts as found: no test could run.
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
