"""Every planted bug still matches the product, the import hook changes only what it should, and the named tests find
their bugs."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.simulation.mutants.__main__ import attempt
from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Edit, Mutant, MutantError, plant

ROOT = Path(__file__).parents[3]
#: Bugs found by tests that take less than a second; they are planted in every run of the suite, to test the mechanism
#: itself.
CHEAP = (
    "refused-batch-believed",
    "sweep-keeps-the-dead",
    "one-page-of-control",
    "no-retention",
    "slow-store-expires",
    "gap-resolved-unseen",
    "share-fetch-describes",
    "list-offsets-reads",
    "groups-deleted-unasked",
)
IDS = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_mutant_fits_the_product_and_is_still_python(mutant: Mutant) -> None:
    assert mutant.edits
    for module in mutant.modules:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text()
        changed = source
        for edit in mutant.edits:
            if edit.module == module:
                changed = edit.apply(changed)
        assert changed != source
        compile(changed, spec.origin, "exec")


def test_names_are_different() -> None:
    assert len(set(IDS)) == len(IDS)


def test_text_that_is_not_there_once_is_an_error() -> None:
    with pytest.raises(MutantError, match="2 times"):
        Edit("m", "a", "b").apply("a a")
    with pytest.raises(MutantError, match="0 times"):
        Edit("m", "a", "b").apply("")


def test_a_module_that_was_imported_before_is_an_error() -> None:
    with pytest.raises(MutantError, match="before the bug was planted"):
        plant(Mutant("late", "comes late", ("INV-1",), (Edit("asyncio", "a", "b"),)))


def test_a_planted_bug_works_in_a_fresh_process() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tests.simulation.mutants.catalogue import MUTANTS\n"
            "from tests.simulation.mutants.mutant import plant\n"
            "plant(next(m for m in MUTANTS if m.name == 'one-delivery-too-many'))\n"
            "from partition_leader.share_partition.core.transitions import released_state\n"
            "print(released_state(5, 5, False))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "0\n"


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.tests], ids=lambda each: each.name)
def test_the_tests_of_a_mutant_exist(mutant: Mutant) -> None:
    assert [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).is_file()] == []


@pytest.mark.parametrize("name", CHEAP)
def test_a_planted_bug_is_found_by_its_tests(name: str) -> None:
    trial = attempt(name)
    assert trial.found, trial.said


def test_a_change_that_is_no_bug_is_not_found() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tests.simulation.mutants import tried\n"
            "from tests.simulation.mutants.mutant import Edit, Mutant\n"
            "module = 'partition_leader.share_partition.core.locks'\n"
            "same = Edit(module, '        self._entries.clear()\\n', '        self._entries = []\\n')\n"
            "tests = ('tests/unit/partition_leader/share_partition/core/test_locks.py',)\n"
            "tried.MUTANTS = (Mutant('harmless', 'nothing', ('PL-303',), (same,), tests),)\n"
            "raise SystemExit(tried.main(['harmless']))",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert said.returncode == 1, said.stderr
    assert '"found": false' in said.stdout.splitlines()[-1]
