"""`make mutants`: hunt every planted bug several times; a table of how many seeds each took; exit 1 if one got away."""

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

from tests.simulation.mutants.catalogue import MUTANTS

#: Hunts of one mutant start this far apart, so that they share no seed.
STRIDE = 100_000
#: The longest that one hunt may take, in seconds; a mutant that makes a run hang is found by the run's own bounds.
HUNT_S = 1_200


@dataclass(frozen=True, slots=True)
class Hunt:
    """How one hunt ended; `rule` is empty when the bug got away."""

    mutant: str
    tried: int
    rule: str
    said: str


def hunt(mutant: str, first: int, seeds: int) -> Hunt:
    """Run one hunt in a process of its own."""
    command = [sys.executable, "-m", "tests.simulation.mutants.hunt", mutant, str(first), str(seeds)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HUNT_S, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return Hunt(mutant, seeds, "", f"the hunt did not end within {HUNT_S} s")
    lines = done.stdout.splitlines()
    try:
        told = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        return Hunt(mutant, seeds, "", f"the hunt failed: {last[0]}")
    return Hunt(mutant, told["tried"], told["rule"], f"seed {told['seed']}: {told['sentence']}")


def main(arguments: Sequence[str]) -> int:
    """Hunt all mutants, or those named."""
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
    hunts: dict[str, list[Hunt]] = defaultdict(list)
    wanted = options.mutants or names
    with ThreadPoolExecutor(options.processes) as pool:
        jobs = [
            pool.submit(hunt, name, 1 + number * STRIDE, options.seeds)
            for name in wanted
            for number in range(options.tries)
        ]
        for job in jobs:
            done = job.result()
            hunts[done.mutant].append(done)
            if len(hunts[done.mutant]) == options.tries:
                print(row(done.mutant, hunts[done.mutant]), flush=True)
    away = [name for name, done in hunts.items() if not all(one.rule for one in done)]
    print(f"mutants={len(wanted)} found={len(wanted) - len(away)} seconds={time.monotonic() - started:.0f}")
    return 1 if away else 0


def row(name: str, hunts: Sequence[Hunt]) -> str:
    """One line of the table."""
    tried = [one.tried for one in hunts]
    rules = sorted({one.rule or "not found" for one in hunts})
    missed = [one.said for one in hunts if not one.rule]
    told = f"  {missed[0]}" if missed else f"  {hunts[0].said:.110}"
    return f"{name:<24} seeds median {statistics.median(tried):>5.0f} worst {max(tried):>4}  {', '.join(rules)}{told}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
