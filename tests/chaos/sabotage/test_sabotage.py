"""Tests the judge on real histories: a sabotaged node is refused for what it does, an unmodified one is accepted.

Two of the sabotages run here; `make sabotages` runs all.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.chaos.sabotage.__main__ import main
from tests.chaos.sabotage.plays import PLAYS, shorten
from tests.chaos.sabotage.run import play
from tests.chaos.sabotage.sabotages import SABOTAGES, Sabotage, named

SEED = 7


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda each: each.name)
def test_a_sabotage_fits_the_product_and_is_still_python(sabotage: Sabotage) -> None:
    assert sabotage.play in PLAYS
    assert sabotage.refused
    for module in sabotage.mutant.modules:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        changed = Path(spec.origin).read_text()
        for edit in sabotage.edits:
            if edit.module == module:
                changed = edit.apply(changed)
        compile(changed, spec.origin, "exec")


def test_names_differ_and_a_wrong_one_is_answered_with_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert len({sabotage.name for sabotage in SABOTAGES}) == len(SABOTAGES)
    assert main(["nothing-wrong"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: there is no sabotage nothing-wrong; there are archived-early, ")


@pytest.mark.parametrize("name", ["archived-early", "state-before-write"])
def test_a_sabotaged_node_is_refused_for_what_it_does_and_an_honest_one_is_not(name: str, tmp_path: Path) -> None:
    sabotage = named(name)
    honest = play(sabotage, tmp_path / "honest", SEED, honest=True)
    assert (honest.complaint, honest.verdict.violations) == ("", ())
    assert honest.verdict.records > 300
    wrong = play(sabotage, tmp_path / "wrong", SEED)
    assert wrong.reason(sabotage), (wrong.verdict.violations[:5], wrong.complaint)


def test_the_end_of_the_file_is_taken_off(tmp_path: Path) -> None:
    file = tmp_path / "appendonlydir" / "store.aof.1.incr.aof"
    file.parent.mkdir()
    file.write_bytes(b"a" * 20_000 + b"b" * 30_000)
    shorten(tmp_path)
    assert file.read_bytes() == b"a" * 20_000
    with pytest.raises(AssertionError, match="too few to lose"):
        shorten(tmp_path)
