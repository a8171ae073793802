"""`python -m tests.chaos.sabotage [NAME…]`: runs each sabotage, and prints why the judge refuses it.

The last line is `sabotages=N refused=M`; the exit status is 0 only if the judge refused each for what it does.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.sabotage.run import play
from tests.chaos.sabotage.sabotages import SABOTAGES, named
from tests.chaos.signals import exit_on_sigterm


def main(words: Sequence[str]) -> int:
    """Run some or all; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.sabotage", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones; all without a name")
    parser.add_argument("--seed", type=int, help="repeat a run's choices; made up and printed when left out")
    parser.add_argument("--out", type=Path, help="new folder for histories; default build/sabotage/<time>")
    asked = parser.parse_args(words)
    try:
        wanted = [named(name) for name in asked.names] or list(SABOTAGES)
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    exit_on_sigterm()
    out = (asked.out or Path("build", "sabotage", time.strftime("%Y%m%d-%H%M%S"))).absolute()
    seed = asked.seed if asked.seed is not None else random.randrange(1_000_000)
    print(f"--seed {seed}, histories in {out}", flush=True)
    refused = 0
    for sabotage in wanted:
        began = time.monotonic()
        judged = play(sabotage, out / sabotage.name, seed)
        reason = judged.reason(sabotage)
        refused += bool(reason)
        said = reason or f"NOT REFUSED for {' or '.join(sabotage.refused)}: {list(judged.verdict.violations)[:3]}"
        complaint = f"; it also ended with: {judged.complaint.splitlines()[0]}" if judged.complaint else ""
        seconds = time.monotonic() - began
        print(f"{sabotage.name:<24}{seconds:6.1f} s  {sabotage.wrong}\n    {said}{complaint}", flush=True)
    print(f"sabotages={len(wanted)} refused={refused}")
    return 0 if refused == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
