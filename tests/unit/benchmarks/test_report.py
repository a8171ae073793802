"""The arithmetic of the report: ratios per round, medians, grades, limits. Nothing here is timed."""

from typing import Any

import pytest

from benchmarks import goals, report, state_machine
from benchmarks.machine import Usage, foreign_share


def drain_run(system: str, number: int, consume: int, shape: str = "1p1c", **more: Any) -> dict[str, Any]:
    fields = {
        "benchmark": "B1",
        "system": system,
        "shape": shape,
        "fsync": "everysec",
        "round": number,
        "produce_per_s": 100,
        "consume_per_s": consume,
        "both_per_s": consume // 2,
        "cpu_us_per_record": 4.0,
        "cpu_produce_us_per_record": 2.0,
        "cycles_per_s": consume / 500,
    }
    return fields | more


def echo_run(number: int, cycles_per_s: float) -> dict[str, Any]:
    return {"benchmark": "B4", "reply_bytes": report.ECHO_BYTES, "round": number, "cycles_per_s": cycles_per_s}


def one_by_one(system: str, shape: str, ops: float, cpu_us: float) -> dict[str, Any]:
    run = {"benchmark": "B5", "system": system, "shape": shape, "round": 1}
    return run | {"ops_per_s": ops, "cpu_us_per_record": cpu_us}


def core_run(workload: str, in_flight: int, us: float, number: int = 1) -> dict[str, Any]:
    return {"benchmark": "B8", "workload": workload, "in_flight": in_flight, "us_per_record": us, "round": number}


def line_of(runs: list[dict[str, Any]], goal: goals.Goal) -> report.Line:
    (found,) = [line for line in report.lines(runs) if line.goal is goal]
    return found


def test_a_ratio_compares_runs_of_the_same_round_and_the_median_is_of_the_ratios() -> None:
    ours = [drain_run(report.OURS, number, rate) for number, rate in enumerate((100, 900, 300), 1)]
    other = [drain_run(report.BASELINE, number, rate) for number, rate in enumerate((50, 900, 600), 1)]
    line = line_of(ours + other, goals.CONSUME_1P1C)
    assert line.rounds == (2.0, 1.0, 0.5)
    assert line.ratio == 1.0, "the ratio of the medians would be 0.5"
    assert line.verdict == "must"


def test_a_round_that_one_side_could_not_finish_is_left_out() -> None:
    runs = [drain_run(report.OURS, 1, 100), drain_run(report.OURS, 2, 500), drain_run(report.BASELINE, 2, 250)]
    assert line_of(runs, goals.CONSUME_1P1C).rounds == (2.0,)


def test_a_round_too_short_for_a_tick_of_cpu_time_is_left_out() -> None:
    assert report.ratios({1: 2.0, 2: 3.0, 3: 0.0}, {1: 0.0, 2: 1.5, 3: 1.0}) == [2.0, 0.0]


def test_one_side_alone_gives_no_ratio() -> None:
    assert report.lines([drain_run(report.BASELINE, 1, 100)]) == []


def test_cycles_are_held_against_the_echo_floor_of_the_same_round() -> None:
    runs = [echo_run(1, 1000.0), echo_run(2, 2000.0), drain_run(report.OURS, 1, 500_000)]
    assert line_of(runs, goals.CYCLES_1P1C).rounds == (1.0,)


def test_one_by_one_is_held_against_the_small_echo_and_against_itself() -> None:
    runs = [{"benchmark": "B4", "reply_bytes": report.ECHO_SMALL_BYTES, "round": 1, "cycles_per_s": 3000.0}]
    for shape, ops in (("1p1c", 1500.0), ("4p16c", 6000.0)):
        runs.append(one_by_one(report.OURS, shape, ops, 100.0))
    assert line_of(runs, goals.ONE_BY_ONE).ratio == 0.5
    assert line_of(runs, goals.ONE_BY_ONE_16).verdict == "good"
    assert "B5 4p16c sharegroups" in report.figures(runs)


def test_the_release_before_is_a_side_of_its_own_and_changes_no_other_ratio() -> None:
    sides = ((report.OURS, 300.0, 60.0), (report.BEFORE, 200.0, 120.0))
    runs = [one_by_one(system, "1p1c", ops, cpu) for system, ops, cpu in sides]
    runs.append({"benchmark": "B4", "reply_bytes": report.ECHO_SMALL_BYTES, "round": 1, "cycles_per_s": 600.0})
    runs += [drain_run(system, 1, int(rate), cpu_us_per_record=cpu) for system, rate, cpu in sides]
    found = {line.name: line.ratio for line in report.lines(runs)}
    assert found == {
        "B5 1p1c ops per s / the release before, everysec": 1.5,
        "B5 1p1c CPU per operation / the release before, everysec": 0.5,
        "B5 1p1c ops per s / B4 (20 B), everysec": 0.5,
        "B1 1p1c consume / the release before, everysec": 1.5,
        "B1 1p1c produce / the release before, everysec": 1.0,
        "B1 1p1c CPU per record / the release before, everysec": 0.5,
        "B1 1p1c CPU to produce a record / the release before, everysec": 1.0,
    }
    assert "B5 1p1c before" in report.figures(runs)


def test_goals_are_for_everysec_and_the_second_line_is_shown_without() -> None:
    runs = [drain_run(system, 1, 100, fsync="always") for system in (report.OURS, report.BASELINE)]
    found = report.lines(runs)
    assert [line.goal for line in found] == [None] * len(found)
    assert any("consume / Valkey group, always" in line.name for line in found)


@pytest.mark.parametrize(
    ("ratio", "grade"), [(0.79, "MISSED"), (0.8, "must"), (1.3, "good"), (1.99, "good"), (2.0, "excellent")]
)
def test_a_grade_is_the_best_goal_reached(ratio: float, grade: str) -> None:
    assert goals.CONSUME_1P1C.grade(ratio) == grade


@pytest.mark.parametrize(("ratio", "grade"), [(1.01, "MISSED"), (1.0, "must"), (0.7, "good"), (0.4, "excellent")])
def test_for_cpu_time_lower_is_better(ratio: float, grade: str) -> None:
    assert goals.CPU_1P4C.grade(ratio) == grade


def test_the_tables_name_ratio_goal_and_flagged_runs() -> None:
    runs = [drain_run(report.OURS, 1, 90, flagged=True), drain_run(report.BASELINE, 1, 100), echo_run(1, 10.0)]
    table = report.table(runs)
    assert "B1 1p1c consume / Valkey group, everysec" in table
    assert "1 of 3 runs are flagged" in table
    assert "B4 echo, two hops, 52,000 B" in report.figures(runs)


def test_no_runs_have_no_median() -> None:
    with pytest.raises(ValueError, match="expected at least one round"):
        report.median([])


def test_foreign_cpu_is_what_is_busy_beyond_our_processes() -> None:
    assert foreign_share(busy_s=3.0, ours_s=2.0, wall_s=2.0, cpus=2) == 0.25
    assert foreign_share(busy_s=1.99, ours_s=2.0, wall_s=2.0, cpus=2) == 0.0
    assert Usage({}, 1.0, 0.25).foreign_share > goals.FOREIGN_CPU_MAX


def test_growth_is_held_against_the_smallest_window_of_the_same_workload() -> None:
    found = state_machine.rows([core_run("uniform", 1_000, 0.2), core_run("uniform", 50_000, 0.4)])
    assert [(row.against, round(row.ratio, 3), row.verdict) for row in found] == [
        ("uniform 1000", 1.0, "-"),
        ("uniform 1000", 2.0, "BROKEN"),
    ]


@pytest.mark.parametrize(("us", "verdict"), [(1.0, "ok"), (4.1, "BROKEN")])
def test_alternating_has_a_limit_against_uniform_and_one_in_microseconds(us: float, verdict: str) -> None:
    runs = [core_run("uniform", 1_000, us / 10), core_run("alternating", 1_000, us)]
    (row,) = [row for row in state_machine.rows(runs) if row.limit is goals.ALTERNATING]
    assert round(row.ratio) == 10
    assert row.verdict == verdict


def test_a_stuck_record_is_held_against_the_same_deliveries_without_it() -> None:
    rounds = [core_run("clear", 1_000, 0.1, number) for number in (1, 2, 3)]
    rounds += [core_run("stuck", 1_000, us, number) for number, us in ((1, 0.1), (2, 0.2), (3, 0.1))]
    (row,) = [row for row in state_machine.rows(rounds) if row.limit is goals.STUCK]
    assert row.verdict == "ok"
    assert "stuck" in state_machine.table(rounds)


def test_a_broker_is_a_further_side_of_the_same_round() -> None:
    kafka = [drain_run(report.KAFKA, 1, 50), drain_run(report.KAFKA, 2, 400)]
    runs = [drain_run(report.OURS, 1, 100), drain_run(report.OURS, 2, 200), *kafka]
    line = line_of(runs, goals.KAFKA_CONSUME)
    assert (line.rounds, line.verdict) == ((2.0, 0.5), "excellent")
    assert [found.name for found in report.lines(runs)] == [
        "B1 1p1c consume / Kafka (B10), everysec",
        "B1 1p1c produce / Kafka (B10), everysec",
    ]


def test_the_mock_broker_is_compared_in_a_benchmark_of_its_own() -> None:
    runs = [drain_run(report.OURS, 1, 100, benchmark="B3"), drain_run(report.MOCK, 1, 25, benchmark="B3")]
    assert [(found.name, found.ratio) for found in report.lines(runs)] == [
        ("B3 1p1c consume / the mock broker, everysec", 4.0),
        ("B3 1p1c produce / the mock broker, everysec", 1.0),
    ]
    assert "B3 1p1c kafka-mock, everysec" in report.figures(runs)
