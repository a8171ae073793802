"""The table of `benchmarks.isolation`: ratios compare runs of one round, independently of the other rounds."""

from __future__ import annotations

from benchmarks.isolation import WAYS, table


def _run(rate: int, flagged: bool = False) -> dict[str, object]:
    return {"consume_per_s": rate, "produce_per_s": rate * 2, "cpu_us_per_record": 2.0, "flagged": flagged}


def test_ratios_are_of_the_same_round() -> None:
    runs = {way: [_run(100), _run(10), _run(40)] for way in WAYS}
    runs[WAYS[1]] = [_run(90, flagged=True), _run(9), _run(36)]
    runs[WAYS[3]] = [_run(90)]
    _, first, second, _, last = table(runs).splitlines()
    assert first.split()[-9:] == ["40", "1.00", "80", "1.00", "2.00", "1.00", "0", "of", "3"]
    assert second.split()[-9:] == ["36", "0.90", "72", "0.90", "2.00", "1.00", "1", "of", "3"]
    assert last.endswith("not all runs were counted")
