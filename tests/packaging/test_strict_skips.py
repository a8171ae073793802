"""CI must not pass by skipping tests: the rule in tests/conftest.py, tried on a small suite of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.conformance.skips import PERMITTED, PERMITTED_IN_CI, permitted

TESTS = Path(__file__).resolve().parent.parent
SUITE = """
import pytest

def test_that_runs():
    pass

@pytest.mark.skip(reason="{reason}")
def test_that_does_not():
    pass
"""


def run(folder: Path, reason: str, *arguments: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    shutil.copy(TESTS / "conftest.py", folder)
    (folder / "permitted_skips_in_ci.txt").write_text("# a comment\n\nneeds a moon: .*\n")
    (folder / "test_suite.py").write_text(SUITE.format(reason=reason))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments, str(folder)],
        cwd=folder,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("arguments", "ci"), [(["--strict-skips"], ""), ([], "true")])
def test_a_skip_for_a_reason_not_on_the_list_fails(tmp_path: Path, arguments: list[str], ci: str) -> None:
    result = run(tmp_path, "felt like it", *arguments, ci=ci)
    assert result.returncode == 1
    assert "the reason is not permitted in CI: 'felt like it'" in result.stdout
    assert "1 passed, 1 error" in result.stdout


def test_a_permitted_skip_stays_a_skip(tmp_path: Path) -> None:
    result = run(tmp_path, "needs a moon: there is none here", "--strict-skips")
    assert result.returncode == 0, result.stdout
    assert "1 passed, 1 skipped" in result.stdout


def test_outside_ci_a_developer_may_skip(tmp_path: Path) -> None:
    assert run(tmp_path, "felt like it").returncode == 0


def test_a_module_that_skips_itself_is_held_to_the_same_list(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text('import pytest\npytest.importorskip("no_such_module_anywhere")\n')
    result = run(tmp_path, "needs a moon: none", "--strict-skips")
    assert result.returncode != 0
    assert "no_such_module_anywhere" in result.stdout


def test_what_ci_may_skip_a_person_may_skip_too() -> None:
    """The shorter list is a subset of the longer one, so that no skip is permitted in CI alone."""
    everywhere, in_ci = (permitted(TESTS.parent / path) for path in (PERMITTED, PERMITTED_IN_CI))
    assert in_ci
    assert {pattern.pattern for pattern in in_ci} < {pattern.pattern for pattern in everywhere}
