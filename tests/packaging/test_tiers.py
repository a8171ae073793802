"""The tests that run daily: tests/tiers.txt names only existing tests, and gives a reason for each that takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import changed, tiers
from tests.packaging.source_imports import ROOT
from tests.tiers import DAILY, LONG, LONG_S, SLOW, lines, listed, recorded, tier_of

DURATIONS = recorded((ROOT / "tests/durations.txt").read_text(encoding="utf-8"))


def test_the_longest_prefix_decides() -> None:
    assert tier_of("tests/unit/a.py::test_b[1]") == DAILY
    assert tier_of("tests/attack/test_floods.py::test_b") == SLOW
    (flood,) = [line for line in listed() if line.kind == DAILY and line.prefix.startswith("attack/test_floods.py")]
    assert tier_of(f"tests/{flood.prefix}[ping]") == DAILY


@pytest.mark.parametrize("text", ["slow attack/", "fast attack/ why", "slow a/ why\ndaily a/ why"])
def test_a_wrong_line_is_refused_with_its_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"tests/tiers.txt:\d: "):
        lines(text)


def test_a_test_may_be_both_daily_and_long() -> None:
    assert len(lines("daily a/test_b.py::test_c  why\nlong a/test_b.py::test_c  why\n# a comment\n")) == 2


@pytest.mark.parametrize("line", listed(), ids=lambda line: f"{line.kind} {line.prefix}")
def test_what_a_line_names_is_there(line: tiers.Line) -> None:
    path, _, test = line.prefix.partition("::")
    assert (ROOT / "tests" / path).exists()
    assert not test or f"def {test}" in (ROOT / "tests" / path).read_text(encoding="utf-8")


def test_the_list_is_sorted() -> None:
    prefixes = [line.prefix for line in listed()]
    assert prefixes == sorted(prefixes)


def test_a_daily_test_that_takes_more_than_two_seconds_has_a_reason() -> None:
    excused = tuple(f"tests/{line.prefix}" for line in listed() if line.kind == LONG)
    long = {test for test, seconds in DURATIONS.items() if seconds > LONG_S and tier_of(test) == DAILY}
    assert not [test for test in sorted(long) if not test.startswith(excused)], "make it shorter, or add a line `long`"
    stale = [name for name in excused if not any(test.startswith(name) for test in long)]
    assert not stale, "these are short enough by now: take their lines `long` out"


def test_a_run_of_a_tier_has_its_tests_alone() -> None:
    names = ["tests/attack/test_path_bytes.py", "tests/simulation/test_pool.py", "tests/unit/kip932/test_ids.py"]
    done = subprocess.run(
        [sys.executable, *("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--tier", DAILY), *names],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert {test.partition("::")[0] for test in found} == {names[0], names[2]}, done.stdout + done.stderr
    assert {tier_of(test) for test in found} == {DAILY}


def test_a_file_or_folder_without_a_test_of_the_tier_is_not_imported() -> None:
    for name in ("attack/", "attack/test_path_bytes.py", "unit/", "unit/kip932/test_ids.py", "simulation/"):
        assert tiers.has_tests_of(DAILY, name), name
    for name in ("simulation/test_pool.py", "image/", "mutation/"):
        assert not tiers.has_tests_of(DAILY, name), name
        assert tiers.has_tests_of(SLOW, name), name
    assert not tiers.has_tests_of(SLOW, "unit/kip932/")
    assert tiers.has_tests_of(SLOW, "unit/")


def test_durations_are_those_of_the_longest_case() -> None:
    assert recorded("# words\n   1.2  tests/a.py::test_b\n") == {"tests/a.py::test_b": 1.2}


def test_a_changed_file_is_reached_by_the_tests_that_import_it_the_nearest_first() -> None:
    core = ROOT / "services/share_coordinator/core/share_state.py"
    near = ROOT / "tests/unit/share_coordinator/core/test_share_state.py"
    far = ROOT / "tests/unit/share_coordinator/core/test_writes.py"
    other = ROOT / "tests/unit/kip932/test_ids.py"
    found = changed.distances([near, far, other], [core])
    assert found[near] == 1
    assert found[far] > 1
    assert other not in found
    assert changed.nearest(found, 1) == [near]
    assert changed.distances([near, other], [other]) == {other: 0}
