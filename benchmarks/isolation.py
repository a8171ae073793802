"""`python -m benchmarks.isolation`: the cost of read_committed for a group, and of transactions for a producer.

B1 with one partition and one consumer, in four ways in turn within each round: records without transactions and records
in transactions of 1,000, each read by a group with read_uncommitted and by one with read_committed. JSON lines on
standard output, medians and ratios on standard error; a run disturbed by other processes is flagged as in B1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from benchmarks import drain
from benchmarks.machine import versions
from benchmarks.processes import BenchmarkError
from benchmarks.report import median
from benchmarks.share_group import ShareGroup

TOGETHER: Final = 1_000
_LEVELS: Final = ("read_uncommitted", "read_committed")


class Way(NamedTuple):
    """How records are written, and read."""

    transaction_records: int
    isolation: str

    @property
    def name(self) -> str:
        """The name for people."""
        written = f"transactions of {self.transaction_records}" if self.transaction_records else "no transactions"
        return f"{written}, {self.isolation}"


WAYS: Final = tuple(Way(records, level) for records in (0, TOGETHER) for level in _LEVELS)


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds. Returns the exit status: 1 when a run could not be counted."""
    options = _parser().parse_args(arguments)
    runs: dict[Way, list[dict[str, Any]]] = {way: [] for way in WAYS}
    failures = 0
    for number in range(1, options.rounds + 1):
        for way in WAYS if number % 2 else reversed(WAYS):  # so that no way always comes after the same one
            task = drain.Task(drain.SHAPES["1p1c"], options.records, fsync=options.fsync, benchmark="isolation")
            system = ShareGroup(isolation=way.isolation, transaction_records=way.transaction_records)
            try:
                found = drain.run(system, task) | way._asdict()
            except BenchmarkError as error:
                failures += 1
                print(f"{way.name}, round {number}: {error}", file=sys.stderr, flush=True)
                continue
            runs[way].append(found)
            stamp = {"round": number, "load": os.getloadavg()[0], "at": time.time(), "versions": versions()}
            print(json.dumps(found | stamp), flush=True)
    print("\n" + table(runs), file=sys.stderr, flush=True)
    return 1 if failures else 0


def table(runs: Mapping[Way, Sequence[Mapping[str, Any]]]) -> str:
    """Return the medians of each way, and the medians of its per-round ratios to the first way. `CPU us`: of all
    processes together while records are consumed, per record."""
    base = runs[WAYS[0]]
    heads = ("consumed/s", "ratio", "produced/s", "ratio", "CPU us", "ratio")
    widths = (11, 6, 11, 6, 7, 6)
    lines = [
        " ".join([f"{'':45}", *(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)), "flagged"])
    ]
    for way, found in runs.items():
        if not found or len(found) != len(base):
            lines.append(f"{way.name:45} not all runs were counted")
            continue
        cells = [f"{way.name:45}"]
        for field, form in (("consume_per_s", "11.0f"), ("produce_per_s", "11.0f"), ("cpu_us_per_record", "7.2f")):
            ratio = median([one[field] / first[field] for one, first in zip(found, base, strict=True)])
            cells.append(f"{median([one[field] for one in found]):>{form}} {ratio:>6.2f}")
        cells.append(f"{sum(one['flagged'] for one in found):>5} of {len(found)}")
        lines.append(" ".join(cells))
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.isolation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the four ways, 3 by default")
    parser.add_argument("--records", type=int, default=300_000, help="records of a drain, 300000 by default")
    parser.add_argument("--fsync", choices=("everysec", "always"), default="everysec")
    return parser


if __name__ == "__main__":
    sys.exit(main())
