"""The table of `benchmarks.leaders`: each variant is compared with one leader in the same round. Nothing here is
timed."""

from __future__ import annotations

import pytest

from benchmarks.leaders import busy, table
from benchmarks.share_group import role_of


def _run(rate: int, leader_s: float = 1.0) -> dict[str, object]:
    cpu = {"partition_leader": leader_s, "consumer-0": 0.5, "consumer-1": 0.25}
    return {
        "consume_per_s": rate, "produce_per_s": rate, "cpu_us_per_record": 4.0, "flagged": rate == 9,
        "consume_s": 2.0, "cpu_consume_s": cpu,
    }  # fmt: skip


def test_ratios_are_of_rounds_that_both_ways_have() -> None:
    rounds = {1: _run(100), 2: _run(10)}
    runs = {"one process": rounds, "by role": {2: _run(9)}, "2 leaders": {1: _run(150), 3: _run(1)}}
    _, base, one, two = table(runs).splitlines()
    assert base.split()[2:6] == ["55", "1.00", "55", "1.00"]
    assert one.split()[2:11] == ["9", "0.90", "9", "0.90", "4.00", "1.00", "1", "of", "1"]
    assert two.split()[2:6] == ["150", "1.50", "150", "1.50"]
    assert two.endswith("partition_leader 0.50, consumers 0.38")


def test_a_way_without_a_round_to_compare_is_reported() -> None:
    assert "no run can be compared" in table({"one process": {1: _run(1)}, "by role": {}})


def test_consumers_are_added_up() -> None:
    assert busy(_run(1)) == {"partition_leader": 0.5, "consumers": 0.375}


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["python", "-m", "share_node", "serve", "partition_leader", "node.name=a"], "partition_leader"),
        (["python", "-I", "store_watcher.py"], "helper"),
        (["serve"], "helper"),
        ([], "helper"),
    ],
)
def test_a_process_is_named_by_the_role_that_it_serves(words: list[str], role: str) -> None:
    assert role_of(words) == role
