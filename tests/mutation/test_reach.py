"""Which lines a test must run to notice a change, which tests do, and how a process that never ends is recognised."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.changes import changes
from tests.mutation.coverage import SEEDS, Lines, Watch
from tests.mutation.reach import Reach, reach
from tests.mutation.rooms import CORES, ENGINE, HOSTS, ROOMS, ROOT, Place, counts, stages

FILE = "services/a.py"
SOURCE = """LIMIT: int = 3
TWICE = (LIMIT, 2)


class Box:
    size: int = 7

    def room(self, of: int = 5) -> int:
        if of > 8 and self:
            total = sum(
                (of, 9),
            )
            return total
        return 10
"""
OTHER = """from a import LIMIT, Box, TWICE


def look():
    made = Box()
    return TWICE
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "services").mkdir()
    (tmp_path / "client").mkdir()
    (tmp_path / FILE).write_text(SOURCE)
    (tmp_path / "services/b.py").write_text(OTHER)
    return tmp_path


@pytest.mark.parametrize(("old", "lines"), [("8", {9}), ("9", {10, 11, 12}), ("10", {14})])
def test_within_a_function_it_is_the_statement_and_of_a_compound_one_its_head(
    project: Path, old: str, lines: set[int]
) -> None:
    change = next(each for each in changes(SOURCE) if each.old == old)
    assert reach(project, FILE, change) == Reach({FILE: frozenset(lines)})


@pytest.mark.parametrize(
    ("old", "names", "elsewhere"),
    [
        ("3", {"LIMIT", "TWICE"}, {1, 6}),
        ("7", {"Box"}, {1, 5}),
        ("5", {"room"}, set()),
    ],
)
def test_of_what_is_made_on_import_it_is_each_line_that_names_it_or_what_is_made_of_it(
    project: Path, old: str, names: set[str], elsewhere: set[int]
) -> None:
    change = next(each for each in changes(SOURCE) if each.old == old)
    found = reach(project, FILE, change)
    assert found.names == names
    assert found.lines.get("services/b.py", set()) == elsewhere


def test_the_tests_that_can_notice_a_change_come_quickest_first() -> None:
    lines = Lines()
    lines.add("tests/mutation/test_mutation.py::a", 2.0, {FILE: {4, 5}})
    lines.add("tests/mutation/__init__.py::b", 0.5, {FILE: {5}})
    lines.add("tests/mutation/__init__.py::b", 0.1, {FILE: {9}})
    lines.add("tests/mutation/test_reach.py::c", 0.2, {})
    lines.add(SEEDS, 9.0, {"other": {5}})
    assert lines.noticing(Reach({FILE: frozenset({5})})) == [
        "tests/mutation/__init__.py::b",
        "tests/mutation/test_mutation.py::a",
    ]
    assert lines.noticing(Reach({FILE: frozenset({9})})) == ["tests/mutation/__init__.py::b"]
    assert lines.noticing(Reach({}, frozenset({"_branches"}))) == ["tests/mutation/test_reach.py::c"], "it names it"
    assert lines.seconds("tests/mutation/__init__.py::b") == pytest.approx(0.6)


def test_tests_on_real_sockets_count_for_hosts_alone() -> None:
    on_sockets = "tests/contracts/test_append.py::a"
    assert [counts(room, on_sockets) for room in (CORES, HOSTS, ENGINE)] == [False, True, False]
    assert all(counts(room, test) for room in ROOMS for test in ("tests/unit/kip932/test_ids.py::a", SEEDS))
    assert not counts(CORES, "tests/integration/runtime/test_rpc.py")
    somewhere = "services/share_node/a.py"
    wide = {room: str(stages(ROOT, Place(room, somewhere, changes(SOURCE)[0]), 0)) for room in ROOMS}
    assert [("tests/contracts" in words, "tests/integration" in words) for words in wide.values()] == [
        (False, False),
        (True, True),
        (False, False),
    ]


def test_a_map_that_was_kept_is_the_same(tmp_path: Path) -> None:
    lines = Lines()
    lines.add("tests/a.py::a", 2.0, {FILE: {5, 4}})
    lines.save(tmp_path / "map.json")
    assert Lines.load(tmp_path / "map.json").tests == lines.tests
    assert Lines.load(tmp_path / "none.json").tests == {}


def _branches(which: int) -> list[int]:
    if which:
        return [each + 1 for each in range(which)]
    return []


def test_a_watch_returns_the_wanted_lines_that_ran() -> None:
    path = Path(__file__).relative_to(ROOT).as_posix()
    first = _branches.__code__.co_firstlineno
    watch = Watch({path: {first + 1, first + 2, first + 3}})
    with watch() as ran:
        _branches(1)
    assert ran == {path: {first + 1, first + 2}}
    with watch() as ran:
        _branches(0)
    assert ran == {path: {first + 1, first + 3}}
