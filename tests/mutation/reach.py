"""The lines of the product that a test must run to notice a change.

A change within a function can be noticed by tests that run the changed statement. Every test runs the code that runs on
import, so a change there (to a constant, or to the default of a field or argument) can be noticed by tests that run a
line that names what was changed, or whose own file names it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.mutation.changes import Change

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a change can be noticed: the lines of each file, and the names to search for in tests."""

    lines: dict[str, frozenset[int]]
    names: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class _Bound:
    """The effect of one statement while its module is imported: it binds `names` to values made from the names
    `used`."""

    lines: range
    names: frozenset[str]
    used: frozenset[str]


def reach(root: Path, path: str, change: Change) -> Reach:
    """Return where the change to the file `path` can be noticed."""
    tree, _ = _read(root, path)
    own = _within_function(tree, change.line)
    if own is not None:
        return Reach({path: frozenset(own)})
    bound = next((each for each in _bound(tree) if change.line in each.lines), None)
    if bound is None or not bound.names:
        return Reach({path: frozenset(range(1, 100_000))})
    names = _spread(root, bound.names)
    word = re.compile(rf"\b({'|'.join(sorted(names))})\b")
    lines = {
        each: frozenset(number for number, line in enumerate(_read(root, each)[1], 1) if word.search(line))
        for each in _sources(root)
    }
    # A class refers to itself as `cls`, and to its fields by their names.
    lines[path] |= {number for number, line in enumerate(_read(root, path)[1], 1) if re.search(r"\bcls\b", line)}
    return Reach({each: found for each, found in lines.items() if found}, names)


@cache
def _read(root: Path, path: str) -> tuple[ast.Module, list[str]]:
    text = (root / path).read_text(encoding="utf-8")
    return ast.parse(text), text.splitlines()


@cache
def _sources(root: Path) -> list[str]:
    found = [path for part in ("services", "client") for path in (root / part).rglob("*.py")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def _within_function(tree: ast.Module, line: int) -> range | None:
    """Return the lines of the innermost statement at `line` in a function's body; only the head of a compound one."""
    found: range | None = None
    for function in ast.walk(tree):
        if not isinstance(function, _Function):
            continue
        for statement in (each for part in function.body for each in ast.walk(part)):
            if isinstance(statement, ast.stmt | ast.ExceptHandler | ast.match_case):
                lines = _head(statement)
                if line in lines and (found is None or len(lines) <= len(found)):
                    found = lines
    return found


def _head(statement: ast.stmt | ast.ExceptHandler | ast.match_case) -> range:
    if isinstance(statement, ast.match_case):
        return range(statement.pattern.lineno, max(statement.pattern.lineno + 1, statement.body[0].lineno))
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    inner = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if inner:
        begin = inner[0].pattern.lineno if isinstance(inner[0], ast.match_case) else inner[0].lineno
        return range(first, max(first + 1, begin))
    return range(first, last + 1)


def _bound(tree: ast.Module) -> list[_Bound]:
    return list(_of_body(tree.body, frozenset()))


def _of_body(body: list[ast.stmt], around: frozenset[str]) -> Iterator[_Bound]:
    """Yield the statements of a module or, if `around` is not empty, of a class, whose name also stands for its
    fields."""
    for each in body:
        if isinstance(each, ast.ClassDef):
            inner = around | {each.name}
            yield _Bound(_head(each), inner, _used(*each.bases, *(word.value for word in each.keywords)))
            yield from _of_body(each.body, inner)
        elif isinstance(each, _Function):
            defaults = [*each.args.defaults, *(word for word in each.args.kw_defaults if word is not None)]
            yield _Bound(_head(each), around if each.name == "__init__" else frozenset({each.name}), _used(*defaults))
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            names = {name for target in targets for name in _used(target)}
            lines = range(each.lineno, (each.end_lineno or each.lineno) + 1)
            yield _Bound(lines, around or frozenset(names), _used(each.value) if each.value else frozenset())


def _used(*values: ast.expr) -> frozenset[str]:
    inner = [node for value in values for node in ast.walk(value)]
    return frozenset(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in inner
        if isinstance(node, ast.Name | ast.Attribute)
    )


@cache
def _all_bound(root: Path) -> list[_Bound]:
    return [bound for path in _sources(root) for bound in _bound(_read(root, path)[0]) if bound.used]


def _spread(root: Path, names: Set[str]) -> frozenset[str]:
    """Return these names and, transitively, those of values that are made from them on import."""
    found = set(names)
    while True:
        more = {name for bound in _all_bound(root) if bound.used & found for name in bound.names} - found
        if not more:
            return frozenset(found)
        found |= more
