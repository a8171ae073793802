"""One planted bug against its tests, run as a separate process: plants it, then runs them. Prints one JSON line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import pytest

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import plant


class Failures:
    """Notes the tests that fail, and those that could not be collected."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.broken: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(report.nodeid)


def main(arguments: Sequence[str]) -> int:
    """Run the tests that the mutant names until one fails; one that cannot be collected does not count as finding the
    bug."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutant", choices=[mutant.name for mutant in MUTANTS if mutant.tests])
    mutant = next(each for each in MUTANTS if each.name == parser.parse_args(arguments).mutant)
    plant(mutant)
    seen = Failures()
    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *mutant.tests], plugins=[seen])
    found = status == pytest.ExitCode.TESTS_FAILED and bool(seen.failed)
    said = seen.failed[0] if found else f"pytest ended with {int(status)}; {' '.join(seen.broken) or 'no test failed'}"
    print(json.dumps({"found": found, "said": said}))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
