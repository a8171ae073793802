"""B13 run as a whole: a node and a producer as processes, here and as another release. Nothing is timed."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.produce import KIB, MIB, SIZES, main


def test_every_record_of_both_releases_is_confirmed_and_the_memory_of_each_process_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The "other release" is this one, started as a separate interpreter would be.
    words = ["--rounds", "1", "--scale", "0.02", "--sizes", str(KIB), str(MIB), "--before", sys.executable]
    assert main(words) == 0
    out, table = capsys.readouterr()
    runs = [json.loads(line) for line in out.splitlines()]
    assert [(run["system"], run["value_bytes"], run["records"]) for run in runs] == [
        (system, size, int(SIZES[size] * 0.02)) for size in (KIB, MIB) for system in ("sharegroups", "before")
    ]
    assert all(run["mib"].keys() >= {"node", "store", "producer"} for run in runs)
    assert table.count("/ before: rate") == 2
