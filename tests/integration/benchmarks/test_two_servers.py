"""B15 run as a whole, without a broker: Kafka's client and ours take turns at one node. Nothing is timed."""

from __future__ import annotations

import json

import pytest

from benchmarks.two_servers import DRAINS, RATES, main


def test_every_case_is_done_by_each_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "1", "--scale", "0.01"]) == 0
    out, table = capsys.readouterr()
    runs = [json.loads(line) for line in out.splitlines()]
    both = [*DRAINS, *(f"{rate}/s" for rate in RATES)]
    for side, cases in (("native", both), ("listener", [*both, "first", "memory"])):
        assert [run["case"] for run in runs if run["system"] == side] == cases
    for run in runs:
        if run["case"] in DRAINS:
            assert run["records"] >= 500
            assert all(run[name] > 0 for name in ("produce_per_s", "consume_per_s", "produce_us", "consume_us"))
        if run["case"].endswith("/s"):
            assert (run["twice"], 0 < run["p50_ms"] <= run["p99_ms"]) == (0, True)
    assert "first   a new group's first record, s" in table
    assert "/ broker" not in table
