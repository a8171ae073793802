"""`make sim`: which seeds it plays, and what it prints at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import __main__ as module
from tests.simulation.pool import Played, Summary

ROOT = Path(__file__).resolve().parent.parent.parent
CLOSING = re.compile(r"histories=(\d+) operations=(\d+) violations=(\d+) seconds=\d+\.\d")


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1-3", [1, 2, 3]), ("7", [7]), ("3,17,20-22", [3, 17, 20, 21, 22])],
)
def test_seeds_are_ranges_and_lists(text: str, seeds: list[int]) -> None:
    assert module.seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "one", "1-", "1..3"])
def test_other_words_get_what_is_expected(text: str) -> None:
    if text == "1-":
        assert module.seeds_of(text) == [1]
        return
    with pytest.raises(SystemExit, match=r"are not seeds; try 1-2000 or 3,17,20-29"):
        module.seeds_of(text)


def test_fresh_seeds_are_named_before_they_are_played(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = module.seeds_to_play("1-2000", 3)
    assert seeds == list(range(seeds[0], seeds[0] + 3))
    assert seeds[0] > 2_000
    assert capsys.readouterr().out == f"fresh seeds {seeds[0]}-{seeds[2]}\n"


def test_a_violation_is_exit_code_one_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary()
    summary.add(Played(1, 200))
    assert module.close(summary) == 0
    summary.add(Played(2, 210, ("INV-1: gone", "INV-1: also gone"), ("INV-1",)))
    assert module.close(summary) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines.pop(1) == "INV-1: 2"
    assert [CLOSING.fullmatch(line) is not None for line in lines] == [True, True]
    assert lines[1].startswith("histories=2 operations=410 violations=2 ")


def test_a_seed_that_breaks_something_is_printed_with_what_plays_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    code = module.play_range(range(899, 950), 1, "tests.simulation.fakes:play")
    said = capsys.readouterr().out.splitlines()
    assert code == 1
    assert said.count("once upon a time") == module.STORIES_MAX
    assert "seed 904: INV-1: gone (and 1 more)  again: make sim SEED=904" in said
    assert sum("again: make sim" in line for line in said) == module.LINES_MAX - module.STORIES_MAX
    seeds = ", ".join(map(str, range(900, 920)))
    assert said[-3:-1] == [f"INV-1: {seeds} and 30 more", f"INV-4: {seeds} and 30 more"]
    assert CLOSING.fullmatch(said[-1])


def test_one_seed_is_printed_with_its_story(tmp_path: Path) -> None:
    out = tmp_path / "all.txt"
    command = [sys.executable, "-m", "tests.simulation", "--seed", "8", "--out", str(out)]
    environment = {**os.environ, "PYTHONHASHSEED": "random"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("seed 8: "), done.stderr
    assert CLOSING.fullmatch(done.stdout.splitlines()[-1])
    assert "-- every event" in out.read_text(encoding="utf-8")
