"""The table of B15: what each side reached, and the ratios of Kafka's client at our node to the other sides, with their
bounds. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks import report
from benchmarks.goals import TWO_SERVERS, Bound
from benchmarks.report import Run, median

#: Kafka's client at a broker, the same at our node, and our own client at our node.
BROKER: Final = "broker"
LISTENER: Final = "listener"
NATIVE: Final = "native"
#: What is shown of a run, with its unit, in the order of the table.
FIELDS: Final = {
    "consume_per_s": "consumed, records/s",
    "produce_per_s": "produced, records/s",
    "consume_us": "server's CPU, µs per record consumed",
    "produce_us": "server's CPU, µs per record produced",
    "p50_ms": "latency p50, ms",
    "p99_ms": "latency p99, ms",
    "server_us": "server's CPU, µs per record of the latency",
    "first_s": "a new group's first record, s",
    "memory_mib": "server's memory, MiB",
}


class Line(NamedTuple):
    """One field of one case: the median of each side, and what the listener's is divided by another side's, by round.

    Without another side, `rounds` are the figures themselves.
    """

    field: str
    case: str
    below: str
    rounds: tuple[float, ...]
    bound: Bound | None

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)


def lines(runs: Sequence[Run]) -> list[Line]:
    """Return every ratio that the runs allow, and the figures that have a bound by themselves."""
    bounds = {(bound.field, bound.case, bound.below): bound for bound in TWO_SERVERS}
    found: list[Line] = []
    for below in ("", BROKER, NATIVE):
        for field in FIELDS:
            for case in dict.fromkeys(run["case"] for run in runs):
                bound = bounds.get((field, case, below))
                ours = _by_round(runs, field, case, LISTENER)
                rounds = report.ratios(ours, _by_round(runs, field, case, below)) if below else list(ours.values())
                if rounds and (below or bound):
                    found.append(Line(field, case, below, tuple(rounds), bound))
    return found


def _by_round(runs: Sequence[Run], field: str, case: str, system: str) -> dict[int, float]:
    mine = [run for run in runs if (run["case"], run["system"]) == (case, system)]
    return {run["round"]: run[field] for run in mine if run.get(field) is not None}


def table(runs: Sequence[Run]) -> str:
    """Return medians of each side, the listener's ratios by round, bounds, and the number of flagged runs."""
    rows = [f"{'median of rounds':<52}{LISTENER:>12}{BROKER:>12}{NATIVE:>12}"]
    for field, text in FIELDS.items():
        for case in dict.fromkeys(run["case"] for run in runs):
            sides = [_by_round(runs, field, case, system) for system in (LISTENER, BROKER, NATIVE)]
            if any(sides):
                cells = [_number(median(list(side.values()))) if side else "" for side in sides]
                rows.append(f"{f'{case:<8}{text}':<52}" + "".join(f"{cell:>12}" for cell in cells))
    rows += ["", f"{'listener / the other (median of rounds)':<62}{'ratio':>8}  {'rounds':<22}{'bound':>8}"]
    for line in lines(runs):
        name = f"{line.case:<8}{FIELDS[line.field]}" + (f" / {line.below}" if line.below else "")
        rounds = " ".join(f"{value:.2f}" for value in line.rounds)
        bound = line.bound
        end = f"{'≤ ' if bound.lower_is_better else '≥ '}{bound.bound:g}  {bound.verdict(line.value)}" if bound else ""
        rows.append(f"{name:<62}{line.value:>8.2f}  {rounds:<22}{end:>16}".rstrip())
    return "\n".join([*rows, *report.flagged(runs)])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
