"""The small changes that can be made to a source file: comparisons, signs, constants, conditions, statements,
arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: Final[dict[type[ast.operator], str]] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*"}
#: Calls on these objects only report; they change no result.
_REPORTING: Final = frozenset({"log", "meter", "metrics", "_meter", "_metrics", "logging", "warnings"})


@dataclass(frozen=True, slots=True)
class Change:
    """Replaces the source text from `start` to `end` (offsets in characters) by `new`."""

    kind: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def apply(self, source: str) -> str:
        """Return the changed source. Raises ValueError if `source` is not the text that the change was made for."""
        if source[self.start : self.end] != self.old:
            raise ValueError(f"line {self.line} holds {source[self.start : self.end]!r}, not {self.old!r}: draw again")
        return source[: self.start] + self.new + source[self.end :]

    def __str__(self) -> str:
        return f"{self.line}: {self.kind}: {' '.join(self.old.split())} → {' '.join(self.new.split())}"


def changes(source: str) -> list[Change]:
    """Return every possible change to `source`, by line; none in annotations, docstrings, or messages for people."""
    found = _Finder(source)
    found.visit(ast.parse(source))
    return sorted(found.changes, key=lambda change: (change.start, change.end, change.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.changes: list[Change] = []
        self._source = source
        self._bytes = [line.encode() for line in source.splitlines(keepends=True)]
        self._begins = [0]
        for line in source.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))

    # ---- positions

    def _offset(self, line: int, column: int) -> int:
        return self._begins[line - 1] + len(self._bytes[line - 1][:column].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end]

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        start, end = self._span(node)
        self.changes.append(Change(kind, node.lineno, start, end, self._source[start:end], new))

    def _between(self, kind: str, left: ast.expr, right: ast.expr, new: str) -> None:
        # An operator has no position of its own in the tree; parentheses around the operands stay as they are.
        start, end = self._span(left)[1], self._span(right)[0]
        text = self._source[start:end]
        operator = text.strip(" ()\n\t")
        if operator and text.count(operator) == 1 and "#" not in text:
            at = start + text.index(operator)
            self.changes.append(Change(kind, left.lineno, at, at + len(operator), operator, new))

    # ---- skipped

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Skip: annotations have no behaviour."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip: the text is for people to read."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip: an assertion states an invariant, which needs no test of its own."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Skip: it only contains the error's text; whether it is raised depends on a condition, which is changed."""

    def _functions(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        if node.name not in {"__repr__", "__str__"}:
            for statement in node.body:
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._functions(node)

    # ---- changed

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self._between("border", left, right, _COMPARE[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        new = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("and/or", left, right, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if new := _ARITHMETIC.get(type(node.op)):
            self._between("arithmetic", node.left, node.right, new)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self._add("constant", node, str(node.value + 1))

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._add("condition", node.test, f"not ({self._text(node.test)})")
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        awaited = isinstance(value, ast.Await)
        call = value.value if isinstance(value, ast.Await) else value
        if not isinstance(call, ast.Call) or _is_report(call):
            return
        self._add("statement", node, "await asyncio.sleep(0)" if awaited and "asyncio" in self._source else "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("statement", node, "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_report(node):
            return
        first = node.args[:2]
        if len(first) == 2 and all(isinstance(each, ast.Name | ast.Attribute) for each in first):
            start, end = self._span(first[0])[0], self._span(first[1])[1]
            a, b = (self._text(each) for each in first)
            gap = self._source[self._span(first[0])[1] : self._span(first[1])[0]]
            self.changes.append(Change("arguments", node.lineno, start, end, self._source[start:end], f"{b}{gap}{a}"))
        self.generic_visit(node)


def _is_report(call: ast.Call) -> bool:
    names = list(_names(call.func))
    return bool(_REPORTING & set(names)) or names[:1] in (["Final"], ["TypeVar"], ["field"], ["dataclass"])


def _names(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield from _names(node.value)
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id


def compiles(source: str, change: Change) -> bool:
    """Return True if the source is still Python after the change."""
    try:
        compile(change.apply(source), "changed", "exec")
    except SyntaxError:
        return False
    return True
