"""One hunt, run as a separate process: plants a bug, then runs seeds until a checker finds it. Prints one JSON line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import plant
from tests.simulation.pool import rest_collector


def main(arguments: Sequence[str]) -> int:
    """Hunt `mutant`, with at most `seeds` seeds, starting at `first`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutant", choices=[mutant.name for mutant in MUTANTS])
    parser.add_argument("first", type=int)
    parser.add_argument("seeds", type=int)
    options = parser.parse_args(arguments)
    plant(next(mutant for mutant in MUTANTS if mutant.name == options.mutant))
    # Imported late: the product must be imported with the bug in it.
    from tests.simulation.simulate import simulate  # noqa: PLC0415

    rest_collector()
    for tried in range(1, options.seeds + 1):
        seed = options.first + tried - 1
        outcome = simulate(seed)
        if outcome.violations:
            found = outcome.violations[0]
            print(json.dumps({"seed": seed, "tried": tried, "rule": found.rule, "sentence": found.sentence}))
            return 0
    print(json.dumps({"seed": None, "tried": options.seeds, "rule": "", "sentence": ""}))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
