"""`python -m benchmarks.growth`: B7, how the cost of a record grows when one quantity is ten times larger.

Each series has two drains, one with ten times as much of one quantity, in turn within each round. It compares the CPU
time of all processes per delivered record. Performance.md §3 limits the ratio; 1.2 and below counts as flat. JSON lines
on standard output, medians on standard error.

`partitions`  of the topic, all read by one consumer.
`groups`      that read the same topic, one consumer each: a record is delivered once to each group.
`members`     of one group on four partitions.
`in flight`   records of one partition: two members, and twenty, that take 150 at a time. More cannot be in flight, as a
              partition delivers no more records beyond its start offset than it has record locks (PL-222). B8 measures
              the state machine by itself, with up to 50,000.
`length`      of the topic, and so of the drain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks import drain
from benchmarks.goals import FLAT
from benchmarks.report import median
from benchmarks.session import Session
from benchmarks.share_group import ShareGroup

TIMES: Final = 10
_TAKEN: Final = 150
_LOCKS: Final = 4_000


@dataclass(frozen=True, slots=True)
class Series:
    """The quantity that grows: `least`, and then ten times as much."""

    name: str
    least: int

    def task(self, many: bool, records: int) -> drain.Task:
        """Return the drain. A group consumes `records`; half as many in `groups`, and a tenth in a short topic."""
        amount = self.least * (TIMES if many else 1)
        given: dict[str, Any] = {
            "partitions": {"shape": drain.Shape(amount, 1), "records": records},
            "groups": {"shape": drain.Shape(1, amount), "records": records // 2, "groups": amount},
            "members": {"shape": drain.Shape(4, amount), "records": records},
            "in flight": {"shape": drain.Shape(1, amount), "records": records, "fetch_records": _TAKEN},
            "length": {"shape": drain.Shape(1, 1), "records": records if many else records // TIMES},
        }[self.name]
        return drain.Task(**given, benchmark="B7")

    @property
    def configs(self) -> dict[str, str]:
        """The configs of the group."""
        return {"share.partition.max.record.locks": str(_LOCKS)} if self.name == "in flight" else {}


ALL: Final = {
    one.name: one
    for one in (
        Series("partitions", 1),
        Series("groups", 1),
        Series("members", 1),
        Series("in flight", 2),
        Series("length", 1),
    )
}


def run(series: Series, many: bool, records: int) -> dict[str, Any]:
    """Run one drain. Raises BenchmarkError."""
    found = drain.run(ShareGroup(configs=series.configs), series.task(many, records))
    return found | {"series": series.name, "times": TIMES if many else 1}


def main(arguments: list[str] | None = None) -> int:
    """Run the rounds. Returns the exit status: 1 when a run could not be counted."""
    options = _parser().parse_args(arguments)
    session = Session()
    for number in range(1, options.rounds + 1):
        for name in options.series:
            for many in (False, True) if number % 2 else (True, False):
                session.attempt(name, number, partial(run, ALL[name], many, options.records))
    print("\n" + table(session.runs), file=sys.stderr, flush=True)
    return 1 if session.failures else 0


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the medians of both drains and of the rounds' ratios, with the verdict."""
    lines = [f"{'ten times the':14}{'CPU us, once':>13}{'ten times':>10}{'ratio':>7}  flat  (of the rounds; flagged)"]
    for name in dict.fromkeys(run["series"] for run in runs):
        cost = {(run["times"], run["round"]): run["cpu_us_per_record"] for run in runs if run["series"] == name}
        both = [number for times, number in cost if times == 1 and (TIMES, number) in cost]
        rounds = [cost[TIMES, number] / cost[1, number] for number in both]
        if not rounds:
            lines.append(f"{name:14} no round has both")
            continue
        once, more = (median([us for (times, _), us in cost.items() if times == each]) for each in (1, TIMES))
        flagged = sum(run["flagged"] for run in runs if run["series"] == name)
        each = ", ".join(f"{ratio:.2f}" for ratio in rounds)
        flat = "yes" if median(rounds) <= FLAT else "NO"
        lines.append(f"{name:14}{once:>13.2f}{more:>10.2f}{median(rounds):>7.2f}  {flat:4}  ({each}; {flagged})")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--series", nargs="+", choices=tuple(ALL), default=tuple(ALL))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=300_000, help="records of a drain")
    return parser


if __name__ == "__main__":
    sys.exit(main())
