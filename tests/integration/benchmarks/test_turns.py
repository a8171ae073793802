"""B14 run as a whole: two nodes of this release and two of another one take turns. Nothing is timed."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.turns import KINDS, MEASURES, main


def test_every_turn_ends_with_the_figures_of_both_releases(capsys: pytest.CaptureFixture[str]) -> None:
    # The "other release" is this one, started as a separate interpreter would be.
    assert main(["--rounds", "1", "--scale", "0.02", "--before", sys.executable]) == 0
    out, table = capsys.readouterr()
    runs = [json.loads(line) for line in out.splitlines()]
    assert [run["kind"] for run in runs] == list(KINDS)
    for run in runs:
        assert [turn["system"] for turn in run["turns"]] == ["sharegroups", "before", "before", "sharegroups"]
        assert all(turn[measure] > 0 for turn in run["turns"] for measure in MEASURES)
    assert len(table.strip().splitlines()) == 1 + len(KINDS) * len(MEASURES)
