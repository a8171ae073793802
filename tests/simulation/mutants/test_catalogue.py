"""Every planted bug still fits the product, and the hook that plants them changes what it should and nothing else."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Edit, Mutant, MutantError, plant

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
            "from partition_leader.share.core.transitions import released_state\n"
            "print(released_state(5, 5, False))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "0\n"
