"""B6 run as a whole: a server, a producer and consumers as processes, and every record is received. Nothing is
timed."""

from __future__ import annotations

import argparse
import sys

import pytest

from benchmarks.latency import Case, run


@pytest.mark.parametrize("system", ["sharegroups", "valkey-group"])
def test_every_record_of_a_run_is_confirmed_and_seen(system: str) -> None:
    options = argparse.Namespace(python=sys.executable, fsync="everysec", kafka="")
    found = run(system, Case(per_second=100.0, consumers=2, seconds=0.3, value_bytes=100), options)
    assert (found["records"], found["twice"], sum(found["by_consumer"])) == (30, 0, 80)
    assert found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert found["cpu_s"].keys() >= {"producer", "consumer-0", "consumer-1"}
