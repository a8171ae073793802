"""Writes docs/conformance.md: which test shows which rule of docs/spec.

The rules are read from the specification. The tests are read, without running them, from their `rule` and `scenario`
markers, and from the ids in the transcripts of tests/scenarios. A packaging test runs `--check`, so the page is never
out of date.

    python tools/conformance.py --write     # what `make docs` does
    python tools/conformance.py --check     # exit 1 when the page differs
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/conformance.md")
SPEC = Path("docs/spec")
TESTS = Path("tests")

ID = r"(?:(?:INV|S|PL|GC|CL|CT|OP|SC|SR|CM|PM|P)-\d+[a-j]?|[VX]\d+[a-j]?)"
_TOKEN = re.compile(rf"(?<![\w-]){ID}(?![\w-])")
# Where the specification defines a rule: at the head of a line, row or heading; in bold; as a label.
_DEFINED = (
    re.compile(rf"^[\s|#*-]*({ID})(?![\w-])"),
    re.compile(rf"\*\*({ID})(?![\w-])"),
    re.compile(rf"(?:^|\s)({ID})(?: \[\w+\])?: "),
    re.compile(rf"^#+ .*\(({ID})\b"),
)
# Rules that tests cite by the first cell of their row: transitions (T4), and open points, whose numbers begin with that
# of their section (12.18). Only cells count: in running text such words may mean anything.
_ROW = re.compile(r"^\|\s*(?:(T\d+)|((\d+)\.\d+))\s*\|")
_SECTION = re.compile(r"^#+ (\d+)\. ")
_SPAN = re.compile(r"^([A-Z]+)-(\d+)…(?:[A-Z]+-)?(\d+) =(.*)")
_TITLE_LENGTH = 96
_MARKERS = frozenset({"rule", "scenario"})


class Rule(NamedTuple):
    """A rule of the specification: its id, its page, and its first words."""

    id: str
    page: str
    title: str


def rules(spec: Path) -> dict[str, Rule]:
    """Every rule that the pages in the folder `spec` define, by id, in the order of the pages."""
    found: dict[str, Rule] = {}
    for page in sorted(spec.glob("*.md")):
        section = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if heading := _SECTION.match(line):
                section = heading[1]
            for rule_id, rest in _definitions(line, section):
                found.setdefault(rule_id, Rule(rule_id, page.name, _title(rest)))
    return found


def _definitions(line: str, section: str) -> Iterator[tuple[str, str]]:
    if span := _SPAN.match(line):
        for number in range(int(span[2]), int(span[3]) + 1):
            yield f"{span[1]}-{number}", span[4]
    if (row := _ROW.match(line)) and row[3] in (None, section):
        yield row[1] or row[2], line[row.end() :]
    for pattern in _DEFINED:
        for match in pattern.finditer(line):
            yield match[1], line[match.end() :]


def _title(rest: str) -> str:
    words = re.sub(r"[|*`#]+", " ", re.sub(r"^[\s.:|*–—-]+", "", rest))
    words = " ".join(re.sub(r"^\[[^\]]*\]", "", words.strip()).split())
    words = words.replace("<", "&lt;")
    return words if len(words) <= _TITLE_LENGTH else words[: words.rfind(" ", 0, _TITLE_LENGTH)] + " …"


def citations(tests: Path) -> dict[str, set[str]]:
    """Rule id → the tests that cite it, as `path::test` relative to the folder above `tests`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(tests.rglob("*.py")):
        name = path.relative_to(tests.parent).as_posix()
        for where, rule_id in _marked(ast.parse(path.read_text(encoding="utf-8")).body, ()):
            found[rule_id].add(f"{name}::{where}" if where else name)
    for path in sorted((tests / "scenarios").rglob("*.txt")):
        for rule_id in _TOKEN.findall(path.read_text(encoding="utf-8")):
            found[rule_id].add(path.relative_to(tests.parent).as_posix())
    return found


def _marked(body: list[ast.stmt], inherited: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    # A `pytestmark` holds for everything below it.
    shared = inherited + tuple(
        rule_id
        for statement in body
        if isinstance(statement, ast.Assign) and _assigns_pytestmark(statement)
        for rule_id in _ids(statement)
    )
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            own = shared + tuple(rule_id for decorator in statement.decorator_list for rule_id in _ids(decorator))
            inside = list(_marked(statement.body, own))
            # A Hypothesis state machine has rules instead of test methods; then the class itself is the test.
            cited = inside or [("", rule_id) for rule_id in own]
            yield from ((f"{statement.name}.{where}".rstrip("."), rule_id) for where, rule_id in cited)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name.startswith("test"):
                yield from ((statement.name, rule_id) for rule_id in shared)
            for decorator in statement.decorator_list:
                yield from ((statement.name, rule_id) for rule_id in _ids(decorator))
        elif not (isinstance(statement, ast.Assign) and _assigns_pytestmark(statement)):
            # Tables of parameters, and the `TestCase` of a Hypothesis machine.
            yield from (("", rule_id) for rule_id in _ids(statement))


def _assigns_pytestmark(statement: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets)


def _ids(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _MARKERS):
            continue
        if isinstance(call.func.value, ast.Attribute) and call.func.value.attr == "mark":
            yield from (str(arg.value) for arg in call.args if isinstance(arg, ast.Constant))


def unknown(root: Path) -> dict[str, set[str]]:
    """Ids that tests cite and that the specification does not contain, with these tests; most likely misspelt."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in (root / SPEC).glob("*.md"))
    known = set(_TOKEN.findall(text)) | set(rules(root / SPEC))
    return {rule_id: where for rule_id, where in citations(root / TESTS).items() if rule_id not in known}


def render(root: Path) -> str:
    """The whole page."""
    defined, cited = rules(root / SPEC), citations(root / TESTS)
    pages: dict[str, list[Rule]] = defaultdict(list)
    for rule in defined.values():
        pages[rule.page].append(rule)
    shown = sum(1 for rule_id in defined if rule_id in cited)
    lines = [
        "# Conformance",
        "",
        "Which test shows which rule of [the specification](spec/). Written by `make docs` from the markers of the",
        "tests; do not edit. A rule without a test is named below its page's table: it may be carried out and not yet",
        "shown.",
        "",
        f"{shown} of {len(defined)} rules are cited by a test.",
    ]
    for page in sorted(pages):
        lines += _section(page, sorted(pages[page], key=lambda rule: _order(rule.id)), cited)
    return "\n".join(lines) + "\n"


def _section(page: str, found: list[Rule], cited: dict[str, set[str]]) -> list[str]:
    with_tests = [rule for rule in found if rule.id in cited]
    without = [rule.id for rule in found if rule.id not in cited]
    lines = ["", f"## {page}", "", f"{len(with_tests)} of {len(found)}: see [{page}](spec/{page})."]
    if with_tests:
        lines += ["", "| Rule | It begins | Tests |", "|---|---|---|"]
        lines += [f"| {rule.id} | {rule.title} | {_links(cited[rule.id])} |" for rule in with_tests]
    if without:
        lines += ["", "Not cited: " + ", ".join(without) + "."]
    return lines


def _links(tests: set[str]) -> str:
    return "<br>".join(f"[{test.rpartition('::')[2]}](../{test.partition('::')[0]})" for test in sorted(tests))


def _order(rule_id: str) -> tuple[str, int, str]:
    match = re.fullmatch(r"(.*?)-?(\d+)([a-z]?)", rule_id)
    return (match[1], int(match[2]), match[3]) if match else (rule_id, 0, "")


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page. Returns 1 when the check fails."""
    parser = argparse.ArgumentParser(description="Which test shows which rule of docs/spec.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help=f"write {PAGE}")
    action.add_argument("--check", action="store_true", help=f"exit 1 when {PAGE} is not what would be written")
    options = parser.parse_args(arguments)
    page, text = ROOT / PAGE, render(ROOT)
    if options.write:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE} is not what the tests' markers say now. Run: make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
