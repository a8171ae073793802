"""`python -m benchmarks.leaders`: B1 with four partitions and four consumers, with one leader and with two.

Four ways in turn within each round: all roles in one process, or each role in its own, both with one leader and with
two (`sharegroups up --leaders 2`), where each leads half of the partitions. JSON lines on standard output, medians and
ratios on standard error. Six or seven processes share the machine's processors, so the ratio shows what more leaders
gain on this many processors; `busy` is the fraction of one processor that each kind of process used.
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

SHAPE: Final = drain.SHAPES["4p4c"]


class Way(NamedTuple):
    """The options of `up`, and how many leaders they start."""

    name: str
    options: tuple[str, ...]
    leaders: int


WAYS: Final = (
    Way("one process", (), 1),
    Way("2 leaders", ("--leaders", "2"), 2),
    Way("by role", ("--processes",), 1),
    Way("by role, 2", ("--processes", "--leaders", "2"), 2),
)
#: The way with which the others are compared.
_BASE: Final = "one process"


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds. Returns the exit status: 1 when a run could not be counted."""
    options = _parser().parse_args(arguments)
    runs: dict[str, dict[int, Mapping[str, Any]]] = {way.name: {} for way in WAYS}
    failures = 0
    for number in range(1, options.rounds + 1):
        for way in WAYS if number % 2 else reversed(WAYS):
            command = (sys.executable, "-m", "share_node", "up", *way.options)
            task = drain.Task(SHAPE, options.records, value_bytes=options.value_bytes, benchmark="leaders")
            try:
                found = drain.run(ShareGroup(command, leaders=way.leaders), task) | {"way": way.name}
            except BenchmarkError as error:
                failures += 1
                print(f"{way.name}, round {number}: {error}", file=sys.stderr, flush=True)
                continue
            runs[way.name][number] = found
            stamp = {"round": number, "load": os.getloadavg()[0], "at": time.time(), "versions": versions()}
            print(json.dumps(found | stamp), flush=True)
    print("\n" + table(runs), file=sys.stderr, flush=True)
    return 1 if failures else 0


def busy(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the fraction of one processor that each kind of process used while records were consumed."""
    found: dict[str, float] = {}
    for name, seconds in run["cpu_consume_s"].items():
        kind = "consumers" if name.startswith("consumer") else name
        found[kind] = found.get(kind, 0.0) + seconds / run["consume_s"]
    return found


def table(runs: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> str:
    """Return the medians of each way, and the medians of its per-round ratios to `_BASE`."""
    base = runs[_BASE]
    lines = [f"{'':14} consumed/s  ratio  produced/s  ratio  CPU us  ratio  flagged  busy"]
    for name, found in runs.items():
        both = [number for number in found if number in base]
        if not both:
            lines.append(f"{name:14} no run can be compared")
            continue
        cells = [f"{name:14}"]
        for field, form in (("consume_per_s", "10.0f"), ("produce_per_s", "11.0f"), ("cpu_us_per_record", "7.2f")):
            ratio = median([found[number][field] / base[number][field] for number in both])
            cells.append(f"{median([found[number][field] for number in both]):>{form}} {ratio:>6.2f}")
        cells.append(f"{sum(found[number]['flagged'] for number in both):>3} of {len(both)} ")
        used = _medians([busy(found[number]) for number in both])
        lines.append(" ".join([*cells, ", ".join(f"{kind} {part:.2f}" for kind, part in used.items())]))
    return "\n".join(lines)


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: median([each.get(kind, 0.0) for each in rounds]) for kind in rounds[0]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leaders", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    return parser


if __name__ == "__main__":
    sys.exit(main())
