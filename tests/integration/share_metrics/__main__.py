"""`make ingest-kills`: stops and kills ingest jobs at least twenty times, and counts what is in Parquet afterwards.

The last line is `kills=N ends=N entries=N rows=N lost=L doubled=D`; the exit status is 0 only if every test passed,
which requires L and D to be 0.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from .account import PROPERTY, Account

HERE = Path(__file__).parent


class Sum:
    """Adds up the accounts of all tests."""

    def __init__(self) -> None:
        self.total = Account(0, 0, 0, 0, 0, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, value in report.user_properties:
                if name == PROPERTY and isinstance(value, list):
                    self.total += Account(*value)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.share_metrics", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how often the process is killed, and how often a query")
    options = parser.parse_args()
    os.environ |= {"INGEST_KILLS": str(options.kills), "INGEST_ENDS": str(options.kills)}
    account = Sum()
    files = [str(HERE / name) for name in ("test_ingest_ends.py", "test_ingest_kills.py")]
    status = pytest.main(["-q", "-s", *files], plugins=[account])
    print(account.total)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
