"""The table of `benchmarks.produce`: releases are compared within a round. Nothing here is timed."""

from __future__ import annotations

from benchmarks.produce import table


def _run(system: str, number: int, rate: float, cpu: float) -> dict[str, object]:
    parts = {"node": cpu / 2, "store": cpu / 4, "producer": cpu / 4}
    return {
        "system": system, "value_bytes": 1024, "round": number, "produce_per_s": rate, "mib_per_s": rate / 1024,
        "cpu_us_per_record": cpu, "cpu_us": parts, "mib": parts, "flagged": number == 2,
    }  # fmt: skip


def test_a_size_has_a_line_for_each_release_and_ratios_of_common_rounds() -> None:
    runs = [_run("sharegroups", 1, 2048, 4), _run("before", 1, 1024, 8), _run("sharegroups", 2, 4096, 4)]
    _, ours, before = table(runs).splitlines()
    assert ours.split()[:4] == ["1024", "sharegroups", "3,072", "3.0"]
    assert ours.endswith("1 of 2  / before: rate 2.00, CPU 0.50")
    assert "node 4.0, store 2.0, producer 2.0;" in before
    assert before.endswith("0 of 1")


def test_one_release_alone_has_no_ratio() -> None:
    assert "/ before" not in table([_run("sharegroups", 1, 1, 1)])
