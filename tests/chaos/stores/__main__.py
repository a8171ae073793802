"""`python -m tests.chaos.stores [--seed N] [--out FOLDER] [NAME …]`: store fail-overs under load, by name or by shape.

The last line is `experiments=N records=M lost=L accepted_twice=A verdict=V`; losses that docs/guarantees.md allows are
not included, and are reported per experiment. V is BAD and the exit status 1 if an experiment failed or something was
lost; otherwise V is good.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.outcome import BAD, GOOD
from tests.chaos.signals import exit_on_sigterm
from tests.chaos.stores.catalogue import select
from tests.chaos.stores.runner import Result, run


def main(arguments: Sequence[str]) -> int:
    """Run experiments; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.stores", description="Store fail-overs under load.")
    parser.add_argument("names", nargs="*", help="sentinel-1/master_killed, or sentinel-1 for all of a shape")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="repeats a run")
    parser.add_argument("--out", type=Path, help="where histories and logs of what failed are kept")
    options = parser.parse_args(arguments)
    exit_on_sigterm()
    try:
        experiments = select(options.names)
    except ValueError as error:
        parser.error(str(error))
    folder = options.out or Path(tempfile.mkdtemp(prefix="sharegroups-stores-"))
    print(f"seed {options.seed}; histories and logs of what fails: {folder}", flush=True)
    results = run(experiments, folder, options.seed, _say)
    verdicts = [result.verdict.verdict for result in results if result.verdict is not None]
    failed = [result.name for result in results if not result.passed]
    if failed:
        print(f"failed: {', '.join(failed)}")
    print(
        f"experiments={len(results)} records={sum(found.records for found in verdicts)} "
        f"lost={sum(found.lost for found in verdicts)} "
        f"accepted_twice={sum(found.accepted_twice for found in verdicts)} verdict={BAD if failed else GOOD}"
    )
    return 1 if failed else 0


def _say(result: Result) -> None:
    print(result, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
