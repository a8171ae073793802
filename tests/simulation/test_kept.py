"""Scenarios that once broke a rule: none of them may break any rule again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.pool import run
from tests.simulation.single import KEPT, Kept, kept_paths, plan_of


@pytest.mark.rule("INV-1", "INV-4", "INV-11", "INV-12", "INV-13", "INV-19", "CM-43")
def test_what_was_mended_stays_mended() -> None:
    paths = kept_paths()
    summary = run(range(len(paths)), play="tests.simulation.single:play_kept")
    broken = [f"{paths[each.seed].name}: {'; '.join(each.violations)}\n{each.story}" for each in summary.failed]
    assert not broken, "\n".join(broken)
    assert summary.histories == len(paths)


def test_kept_scenarios_say_why_and_are_written_as_the_shrinker_writes_them() -> None:
    for path in kept_paths():
        kept = Kept.read(path)
        assert len(kept.why) > 20, path
        assert "say here" not in kept.why, path
        assert kept.text() == path.read_text(encoding="utf-8"), path
        assert plan_of(str(path)) == kept.plan, path


def test_they_are_beside_the_simulator() -> None:
    assert KEPT.parent == Path(__file__).parent
