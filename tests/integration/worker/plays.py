"""Longer runs of workers than the tests make: SIGTERM and SIGKILL under load, in all combinations, with a table of
figures.

python -m tests.integration.worker.plays ends                       # 12 cells, about five minutes
python -m tests.integration.worker.plays ends --signal SIGKILL --assignor simple --workers 2 --rounds 3
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.integration.worker.ends import Cell, Seen, play
from tests.support.node import Cluster

_SIGNALS: Final = ("SIGTERM", "SIGKILL")
_ASSIGNORS: Final = ("simple", "shared")
_HEAD: Final = (
    "| signal | assignor | workers / partitions | jobs | stood still | lost | run twice | of these had ended |"
)


def main(arguments: list[str] | None = None) -> int:
    """Run the cells that the command line selects. Returns 1 if a job was lost, or ran twice without an excuse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ends = parser.add_subparsers(required=True).add_parser("ends", help="workers that get a signal under load")
    ends.add_argument("--signal", choices=_SIGNALS, action="append")
    ends.add_argument("--assignor", choices=_ASSIGNORS, action="append")
    ends.add_argument("--workers", type=int, action="append", help="of 4 partitions; may be repeated; 2, 4 and 6")
    ends.add_argument("--rate", type=int, default=100, help="jobs a second")
    ends.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args(arguments)
    broken = 0
    print(f"{_HEAD}\n|{'---|' * 8}", flush=True)
    with Cluster({}) as cluster, tempfile.TemporaryDirectory(prefix="ends-") as folder:
        for _ in range(given.rounds):
            for name in given.signal or _SIGNALS:
                for assignor in given.assignor or _ASSIGNORS:
                    for workers in given.workers or (2, 4, 6):
                        cell = Cell(signal.Signals[name], assignor, workers, rate=given.rate)
                        seen = play(cluster, Path(folder), cell)
                        broken += is_broken(cell, seen)
                        print(row(cell, seen), flush=True)
    return 1 if broken else 0


def is_broken(cell: Cell, seen: Seen) -> bool:
    """Return whether a job was lost, ran twice although the signal was SIGTERM, or ran twice without involving the
    signalled worker."""
    return bool(seen.lost or seen.twice_elsewhere or (cell.signal is signal.SIGTERM and seen.twice))


def row(cell: Cell, seen: Seen) -> str:
    """Return a row of the table."""
    size = f"{cell.workers} / {cell.partitions}"
    figures = f"{seen.jobs} | {seen.stood_s:.1f} s | {seen.lost} | {seen.twice} | {seen.twice_ended}"
    return f"| {cell.signal.name} | {cell.assignor} | {size} | {figures} |"


if __name__ == "__main__":
    sys.exit(main())
