"""Reads what tests cite from the items that pytest collected; a marker that applies to no test is ignored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.nodes import Node  # pytest does not export what `listchain` returns

MARKERS = ("rule", "scenario")
#: Tests of checkers, and the owner of each checker: they show that it works, not that the product follows a rule.
CHECKERS = {
    "tests/simulation/test_checkers": "simulator",
    "tests/chaos/test_checker": "chaos",
    "tests/chaos/test_causes": "chaos",
}
#: Lists the tests that may be skipped with permission on some machine, one path or test per line.
MAY_SKIP = Path("tests/conformance/may_skip.txt")


@dataclass(slots=True)
class Cited:
    """The citations found. All three map a rule's id to tests, as `tests/path.py::test`; parameters are left out."""

    #: Tests that count as showing the rule.
    shown_by: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Tests that CI may skip with permission; they do not count as showing the rule.
    skippable: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Tests of checkers that look for breaches of the rule.
    watched_by: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Markers that do not count, each with what to do.
    errors: list[str] = field(default_factory=list)

    def tests(self) -> dict[str, set[str]]:
        """Every test that counts as showing something, with its rules."""
        found: dict[str, set[str]] = defaultdict(set)
        for rule_id, tests in self.shown_by.items():
            for test in tests:
                found[test].add(rule_id)
        return found


def name_of(nodeid: str) -> str:
    """A test's name without its parameters."""
    return nodeid.partition("[")[0]


def checker_of(test: str) -> str | None:
    """The owner of the checker that a test tests; None for any other test."""
    return next((name for path, name in CHECKERS.items() if test.startswith(path)), None)


def may_skip(root: Path) -> tuple[str, ...]:
    """The beginnings of the names of all tests that CI may skip with permission."""
    path = root / MAY_SKIP
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    return tuple(line for line in lines if line and not line.startswith("#"))


def read(items: Iterable[pytest.Item], root: Path) -> Cited:
    """Return what these items cite."""
    found, skippable, shared = Cited(), may_skip(root), set()
    for item in items:
        test = name_of(item.nodeid)
        if checker_of(test):
            for rule_id in _ids(item.iter_markers()):
                found.watched_by[rule_id].add(test)
            continue
        shared |= {_holder(node) for node in item.listchain() if not _own(node, item) and list(_ids(node.own_markers))}
        to = found.skippable if test.startswith(skippable) and skippable else found.shown_by
        for node in item.listchain():
            if _own(node, item):
                for rule_id in _ids(node.own_markers):
                    to[rule_id].add(test)
    found.errors = [
        f"{holder}: its `pytestmark`, or a marker of its class, cites {', '.join(sorted(cited))} for every test in it; "
        "cite each rule at the tests that show it"
        for holder, cited in sorted(_by_holder(shared).items())
    ]
    return found


def _own(node: Node, item: pytest.Item) -> bool:
    # A Hypothesis state machine becomes a unittest class with one method: its class is the test.
    return node is item or (node is item.parent and isinstance(node, pytest.Class) and _is_unittest(node))


def _is_unittest(node: pytest.Class) -> bool:
    return type(node).__name__ == "UnitTestCase"


def _holder(node: Node) -> tuple[str, tuple[str, ...]]:
    return node.nodeid, tuple(_ids(node.own_markers))


def _by_holder(shared: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for holder, ids in shared:
        found[holder].update(ids)
    return found


def _ids(markers: Iterable[pytest.Mark]) -> Iterator[str]:
    for marker in markers:
        if marker.name in MARKERS:
            yield from (str(given) for given in marker.args)


def links(tests: Iterable[str]) -> str:
    """Tests as links, for a page in build/."""
    parts = (test.partition("::") for test in sorted(tests))
    return "<br>".join(f"[{name}](../{path})" for path, _, name in parts)
