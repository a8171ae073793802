"""`make mutants`: plant every bug and print which test or seeds found it; exit 1 if a bug was not found.

If a bug names tests, it is planted once and they are run; for any other bug the simulator is run several times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Mutant

#: The distance between the first seeds of a mutant's hunts, so that they share no seed.
STRIDE = 100_000
#: The maximum duration of one hunt, in seconds; a mutant that makes a run hang is found by the run's own limits.
HUNT_S = 1_200
#: The maximum duration of a mutant's tests; a mutant whose tests hang counts as found.
TRIAL_S = 300


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result of one hunt; `rule` is empty if the bug was not found."""

    mutant: str
    tried: int
    rule: str
    said: str


def hunt(mutant: str, first: int, seeds: int) -> Hunt:
    """Run one hunt in a separate process."""
    command = [sys.executable, "-m", "tests.simulation.mutants.hunt", mutant, str(first), str(seeds)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HUNT_S, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return Hunt(mutant, seeds, "", f"the hunt did not end within {HUNT_S} s")
    answer = _last_line(done)
    if isinstance(answer, str):
        return Hunt(mutant, seeds, "", f"the hunt failed: {answer}")
    return Hunt(mutant, answer["tried"], answer["rule"], f"seed {answer['seed']}: {answer['sentence']}")


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a bug's tests: `found` with the test that failed, or the reason why none did."""

    mutant: str
    found: bool
    said: str


def attempt(mutant: str) -> Trial:
    """Run the tests of one bug in a separate process."""
    command = [sys.executable, "-m", "tests.simulation.mutants.tried", mutant]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        return Trial(mutant, True, f"its tests did not end within {TRIAL_S} s")
    answer = _last_line(done)
    return Trial(mutant, False, answer) if isinstance(answer, str) else Trial(mutant, answer["found"], answer["said"])


def _last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any] | str:
    # The last JSON line that the process printed, or what went wrong with it.
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return (done.stderr.strip().splitlines() or ["nothing said"])[-1]
    return answer


def main(arguments: Sequence[str]) -> int:
    """Hunt all mutants, or those given by name; return the exit code."""
    names = [mutant.name for mutant in MUTANTS]
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("mutants", nargs="*", help=f"which ones; all without a name: {', '.join(names)}")
    parser.add_argument("--tries", type=int, default=3, help="hunts per mutant, each over seeds of its own (default 3)")
    parser.add_argument("--seeds", type=int, default=500, help="seeds per hunt at most (default 500)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.mutants) - set(names)):
        parser.error(f"no mutant is called {', '.join(unknown)}; there are {', '.join(names)}")
    started = time.monotonic()
    wanted = [mutant for mutant in MUTANTS if not options.mutants or mutant.name in options.mutants]
    with ThreadPoolExecutor(options.processes) as pool:
        away = _tried(pool, [mutant for mutant in wanted if mutant.tests])
        away += _hunted(pool, [mutant for mutant in wanted if not mutant.tests], options.tries, options.seeds)
    print(f"mutants={len(wanted)} found={len(wanted) - len(away)} seconds={time.monotonic() - started:.0f}")
    return 1 if away else 0


def _tried(pool: ThreadPoolExecutor, mutants: Sequence[Mutant]) -> list[str]:
    """Run the tests of each bug; return the names of those that no test found."""
    away = []
    for trial in pool.map(attempt, [mutant.name for mutant in mutants]):
        print(f"{trial.mutant:<24} {'test' if trial.found else 'NOT FOUND'}  {trial.said}", flush=True)
        if not trial.found:
            away.append(trial.mutant)
    return away


def _hunted(pool: ThreadPoolExecutor, mutants: Sequence[Mutant], tries: int, seeds: int) -> list[str]:
    """Hunt each bug `tries` times; return the names of those that were not found every time."""
    hunts: dict[str, list[Hunt]] = defaultdict(list)
    jobs = [pool.submit(hunt, mutant.name, 1 + number * STRIDE, seeds) for mutant in mutants for number in range(tries)]
    for job in jobs:
        done = job.result()
        hunts[done.mutant].append(done)
        if len(hunts[done.mutant]) == tries:
            print(row(done.mutant, hunts[done.mutant]), flush=True)
    return [name for name, done in hunts.items() if not all(one.rule for one in done)]


def row(name: str, hunts: Sequence[Hunt]) -> str:
    """Return one line of the table."""
    tried = [one.tried for one in hunts]
    rules = sorted({one.rule or "not found" for one in hunts})
    missed = [one.said for one in hunts if not one.rule]
    answer = f"  {missed[0]}" if missed else f"  {hunts[0].said:.110}"
    return f"{name:<24} seeds median {statistics.median(tried):>5.0f} worst {max(tried):>4}  {', '.join(rules)}{answer}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
