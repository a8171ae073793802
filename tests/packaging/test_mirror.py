"""A module's test mirrors the module's name and path: `partition_leader/fetch/fetch.py` has
`tests/unit/partition_leader/fetch/test_fetch.py`. Longer modules without such a test are listed in
covered_elsewhere.txt, each with the test that covers it.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.packaging.source_imports import MODULES, ROOT, reached, within

LINES_MAX = 60
LIST = Path(__file__).with_name("covered_elsewhere.txt")
UNIT = ROOT / "tests" / "unit"


def test_of(module: Path) -> Path:
    """Return the path of a module's own test."""
    return UNIT / module.parent / f"test_{module.stem}.py"


test_of.__test__ = False  # type: ignore[attr-defined]  # it is not a test


def listed(text: str) -> dict[str, str]:
    """Parse lines `module test` into a mapping from module to test; refuse other lines, and a module named twice."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert all(len(row) == 2 for row in rows), [row for row in rows if len(row) != 2]
    assert len({row[0] for row in rows}) == len(rows), "a module is listed twice"
    return {row[0]: row[1] for row in rows}


COVERED = listed(LIST.read_text(encoding="utf-8"))


def has_tests(path: Path) -> bool:
    """Return whether a file has a test."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(getattr(node, "name", "").lower().startswith("test") for node in tree.body)


def without_test(known: Mapping[str, Path]) -> set[str]:
    """Return the longer modules without a test of their name."""
    return {
        within(path).as_posix()
        for path in known.values()
        if path.read_text(encoding="utf-8").count("\n") > LINES_MAX and not test_of(within(path)).exists()
    }


def test_every_longer_module_has_a_test_of_its_name_or_is_listed() -> None:
    missing = without_test(MODULES) - COVERED.keys()
    assert missing == set(), f"write {[str(test_of(Path(name))) for name in missing]}, or list the test in {LIST.name}"


def test_no_line_of_the_list_is_stale() -> None:
    stale = COVERED.keys() - without_test(MODULES)
    assert stale == set(), f"gone, short enough, or with a test of its name by now: take them out of {LIST.name}"


@pytest.mark.parametrize("test", sorted(set(COVERED.values())))
def test_a_listed_test_exists_and_imports_what_it_covers(test: str) -> None:
    path = ROOT / "tests" / test
    assert path.exists(), f"{test} is listed in {LIST.name}, and there is no such file"
    assert has_tests(path)
    known = {within(module).as_posix(): module for module in MODULES.values()}
    found = reached(path)
    far = [module for module, by in COVERED.items() if by == test and known[module] not in found]
    assert far == [], f"{test} imports none of these, not even by way of others"


def test_the_list_is_sorted() -> None:
    assert list(COVERED) == sorted(COVERED)


def test_a_test_that_imports_nothing_reaches_nothing() -> None:
    assert reached(Path(__file__).with_name("__init__.py")) == {Path(__file__).with_name("__init__.py")}
    assert MODULES["shard_runtime.record_log.redis.resp"] in reached(ROOT / "tests" / "contracts" / "test_append.py")
