"""`python -m tests.model --steps 1000000`: compare the share-partition's core with the naive model, step by step.

A history has 400 steps, plus those needed to finish everything. Histories have consecutive seeds, so a failure can be
reproduced from its own seed. The exit code is 1 if core and model ever differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random

from tests.model.draining import drain
from tests.model.schedule import Schedule
from tests.support.small_limits import WIDTHS, set_small

HISTORY_STEPS = 400
#: The maximum number of differences that are printed in full.
SHOWN_MAX = 3


@dataclass(slots=True)
class Outcome:
    """The result of one history; `difference` is empty if product and model agreed to the end."""

    seed: int
    steps: int = 0
    difference: str = ""
    trace: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def play(seed: int, steps: int = HISTORY_STEPS) -> Outcome:
    """Play one history. Any exception counts as a difference, whether from a violated invariant or another error."""
    outcome = Outcome(seed)
    schedule: Schedule | None = None
    try:
        with set_small(Random(f"{seed}/widths"), *((name,) for name in WIDTHS)):
            schedule = Schedule(seed)
            schedule.run(steps)
            drain(schedule)
    except Exception as error:
        where = traceback.format_exc(limit=-4)
        outcome.difference = f"{type(error).__name__}: {error}\n{where}"
    if schedule is not None:
        outcome.steps = schedule.steps + (schedule.pair.steps if outcome.difference else 0)
        outcome.trace, outcome.seen = list(schedule.trace), schedule.seen
    return outcome


def reported(outcome: Outcome) -> str:
    """Describe a difference, the events that led to it, and how to reproduce it."""
    return "\n".join(
        [
            f"seed {outcome.seed}, after {outcome.steps} steps: {outcome.difference}",
            "the last events, each with its time in ms:",
            *(f"  {line}" for line in outcome.trace),
            f"again: python -m tests.model --seed {outcome.seed} --steps {HISTORY_STEPS}",
        ]
    )


def main(arguments: Sequence[str]) -> int:
    """Play histories until the number of steps is reached; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="events to compare after (default 1000000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first history (default 1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    histories = -(-max(1, options.steps) // HISTORY_STEPS)
    seeds = range(options.seed, options.seed + histories)
    print(f"histories {seeds[0]} to {seeds[-1]}", flush=True)
    began, steps, bad, seen = time.monotonic(), 0, 0, Counter[str]()
    with ProcessPoolExecutor(options.processes) as pool:
        for outcome in pool.map(play, seeds, chunksize=1 if histories < 100 else 10):
            steps += outcome.steps
            seen += outcome.seen
            if outcome.difference:
                bad += 1
                if bad <= SHOWN_MAX:
                    print(reported(outcome), flush=True)
    print("; ".join(f"{what} {count}" for what, count in sorted(seen.items())))
    seconds = time.monotonic() - began
    print(f"histories={histories} steps={steps} differences={bad} seconds={seconds:.0f}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
