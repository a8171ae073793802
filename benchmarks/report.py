"""Computes medians and per-round ratios of runs, and the table that compares them with the goals. Measures nothing.

A ratio compares two runs of the same round, since a machine's speed changes from minute to minute. The table shows the
median of these ratios, never the ratio of medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import goals
from benchmarks.goals import Goal
from benchmarks.secure import ACLS, MODES, MTLS

OURS: Final = "sharegroups"
BASELINE: Final = "valkey-group"
BEFORE: Final = "before"
KAFKA: Final = "kafka"
MOCK: Final = "kafka-mock"
ECHO_BYTES: Final = 52_000
ECHO_SMALL_BYTES: Final = 20

Run = Mapping[str, Any]


def median(values: Sequence[float]) -> float:
    """Return the median. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("there is no run to take the median of; expected at least one round")
    return statistics.median(values)


def per_round(runs: Iterable[Run], field: str, **wanted: object) -> dict[int, float]:
    """Return one field of the runs that have the `wanted` values, by round."""
    return {run["round"]: run[field] for run in runs if all(run.get(name) == value for name, value in wanted.items())}


def ratios(above: Mapping[int, float], below: Mapping[int, float]) -> list[float]:
    """Return the ratio for each round that both sides have, unless the lower side is 0: in a short run no tick of CPU
    time may have passed."""
    return [value / below[number] for number, value in above.items() if below.get(number)]


@dataclass(frozen=True, slots=True)
class Line:
    """One ratio with its values by round, and its goal if performance.md sets one."""

    name: str
    rounds: tuple[float, ...]
    goal: Goal | None = None

    @property
    def ratio(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def verdict(self) -> str:
        """The grade that the ratio reaches; empty without a goal."""
        return self.goal.grade(self.ratio) if self.goal else ""


def lines(runs: Sequence[Run]) -> list[Line]:
    """Return every ratio that the runs allow, those with a goal of §5 first. Goals apply to everysec only."""
    found: list[Line] = []
    for benchmark, fsync, shape in dict.fromkeys(
        (run["benchmark"], run["fsync"], run["shape"]) for run in _drains(runs)
    ):
        found += _drain_lines(runs, benchmark, fsync, shape)
    one = per_round(runs, "ops_per_s", benchmark="B5", shape="1p1c", system=OURS)
    sixteen = per_round(runs, "ops_per_s", benchmark="B5", shape="4p16c", system=OURS)
    echo = per_round(runs, "cycles_per_s", benchmark="B4", reply_bytes=ECHO_SMALL_BYTES)
    for goal, above, below in ((goals.ONE_BY_ONE, one, echo), (goals.ONE_BY_ONE_16, sixteen, one)):
        if rounds := ratios(above, below):
            found.append(Line(f"{goal.name}, everysec", tuple(rounds), goal))
    for shape in ("1p1c", "4p16c"):
        compared = (("ops per s", "ops_per_s"), ("CPU per operation", "cpu_us_per_record"))
        found += secure_lines(runs, f"B5 {shape}", OURS, compared, end=", everysec", benchmark="B5", shape=shape)
        for text, field in compared:
            ours = per_round(runs, field, benchmark="B5", shape=shape, system=OURS)
            if rounds := ratios(ours, per_round(runs, field, benchmark="B5", shape=shape, system=BEFORE)):
                found.append(Line(f"B5 {shape} {text} / the release before, everysec", tuple(rounds)))
    return sorted(found, key=lambda line: line.goal is None)


def secure_lines(
    runs: Sequence[Run],
    name: str,
    plain: str,
    fields: Iterable[tuple[str, str]],
    *,
    end: str = "",
    **wanted: object,
) -> list[Line]:
    """Return the ratio of each secured side to the side `plain`, and of access control to mutual TLS alone.

    `fields`: texts and names of what is compared, in the runs that have the `wanted` values.
    """
    found: list[Line] = []
    for text, field in fields:
        for mode, base in (*((mode, plain) for mode in MODES), (ACLS, MTLS)):
            sides = [per_round(runs, field, **(wanted | {"system": side})) for side in (mode, base)]
            if rounds := ratios(*sides):
                below = "without TLS" if base == plain else base
                found.append(Line(f"{name} {text}, {mode} / {below}{end}", tuple(rounds)))
    return found


def _drain_lines(runs: Sequence[Run], benchmark: str, fsync: str, shape: str) -> list[Line]:
    headline = fsync == "everysec"
    ours = {"benchmark": benchmark, "system": OURS, "fsync": fsync, "shape": shape}
    other = ours | {"system": BASELINE}
    found: list[Line] = []

    def add(text: str, field: str, goal: Goal | None, below: Mapping[int, float] | None = None) -> None:
        against = per_round(runs, field, **other) if below is None else below
        if rounds := ratios(per_round(runs, field, **ours), against):
            name = goal.name if goal else f"{benchmark} {shape} {text}"
            found.append(Line(f"{name}, {fsync}", tuple(rounds), goal if headline else None))

    case = (benchmark, shape)
    add("consume / Valkey group", "consume_per_s", goals.CONSUME.get(case))
    add("produce + consume / Valkey group", "both_per_s", goals.BOTH.get(case))
    add("produce / Valkey group", "produce_per_s", None)
    add("CPU per record / Valkey group", "cpu_us_per_record", goals.CPU.get(case))
    before = ours | {"system": BEFORE}
    compared = (("consume", "consume_per_s"), ("produce", "produce_per_s"), *_CPU_FIELDS)
    for text, field in compared:
        add(f"{text} / the release before", field, None, per_round(runs, field, **before))
    found += secure_lines(runs, f"{benchmark} {shape}", OURS, compared, end=f", {fsync}", **ours)
    kafka = ours | {"system": MOCK if benchmark == "B3" else KAFKA}
    name = "the mock broker" if benchmark == "B3" else "Kafka (B10)"
    for text, field in (("consume", "consume_per_s"), ("produce", "produce_per_s")):
        goal = goals.KAFKA_CONSUME if case == ("B1", "1p1c") and text == "consume" else None
        add(f"{text} / {name}", field, goal, per_round(runs, field, **kafka))
    if case == ("B1", "1p1c"):
        echo = per_round(runs, "cycles_per_s", benchmark="B4", reply_bytes=ECHO_BYTES)
        add("polls of 500 per s / B4 (52 KB)", "cycles_per_s", goals.CYCLES_1P1C, echo)
    return found


_CPU_FIELDS: Final = (("CPU per record", "cpu_us_per_record"), ("CPU to produce a record", "cpu_produce_us_per_record"))


def _drains(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run["benchmark"] in ("B1", "B2", "B3")]


def figures(runs: Sequence[Run]) -> str:
    """Return medians of the absolute figures. They are valid for this machine and hour only; compare ratios instead."""
    rows = [
        f"{'median of rounds':<34}{'produce/s':>11}{'consume/s':>11}{'both/s':>10}{'µs CPU/rec':>12}{'cycles/s':>10}"
    ]
    names = ("benchmark", "shape", "system", "fsync")
    for key in dict.fromkeys(tuple(run[name] for name in names) for run in _drains(runs)):
        fields = ("produce_per_s", "consume_per_s", "both_per_s", "cpu_us_per_record", "cycles_per_s")
        wanted = dict(zip(names, key, strict=True))
        values = [median(list(per_round(runs, field, **wanted).values())) for field in fields]
        rows.append(
            f"{' '.join(key[:3]) + ', ' + key[3]:<34}"
            f"{values[0]:>11,.0f}{values[1]:>11,.0f}{values[2]:>10,.0f}{values[3]:>12.2f}{values[4]:>10,.0f}"
        )
    singles = [run for run in runs if run["benchmark"] == "B5"]
    for shape, system in dict.fromkeys((run["shape"], run["system"]) for run in singles):
        ops = median(list(per_round(singles, "ops_per_s", shape=shape, system=system).values()))
        cpu = median(list(per_round(singles, "cpu_us_per_record", shape=shape, system=system).values()))
        rows.append(f"{f'B5 {shape} {system}, everysec':<34}{'':>11}{ops:>11,.0f}{'':>10}{cpu:>12,.0f}{ops:>10,.0f}")
    echoes = [run for run in runs if run["benchmark"] == "B4"]
    for size in dict.fromkeys(run["reply_bytes"] for run in echoes):
        value = median(list(per_round(echoes, "cycles_per_s", reply_bytes=size).values()))
        rows.append(f"{f'B4 echo, two hops, {size:,} B':<34}{'':>44}{value:>10,.0f}")
    return "\n".join(rows)


def table(runs: Sequence[Run]) -> str:
    """Return ratios, rounds and goals as text, with the number of flagged runs."""
    rows = [f"{'ratio (median of rounds)':<54}{'ratio':>7}  {'rounds':<22}{'must':>5}{'good':>6}{'exc.':>6}  reached"]
    for line in lines(runs):
        rounds = " ".join(f"{value:.2f}" for value in line.rounds)
        goal = line.goal
        bounds = f"{goal.must:>5g}{goal.good:>6g}{goal.excellent:>6g}" if goal else f"{'':>17}"
        note = " (lower is better)" if goal and goal.lower_is_better else ""
        rows.append(f"{line.name:<54}{line.ratio:>7.2f}  {rounds:<22}{bounds}  {line.verdict}{note}".rstrip())
    return "\n".join([*rows, *flagged(runs)])


def flagged(runs: Sequence[Run]) -> list[str]:
    """Return a line that says how many runs had other load beside them; none if none had."""
    number = sum(1 for run in runs if run.get("flagged"))
    if not number:
        return []
    return [
        f"{number} of {len(runs)} runs are flagged: other processes used more than "
        f"{goals.FOREIGN_CPU_MAX:.0%} of the machine; repeat them when it is quiet"
    ]
