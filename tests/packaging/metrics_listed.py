"""docs/reference/metrics.md as rows, and the metrics and labels that PromQL expressions use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
#: Metrics of Kubernetes and of Prometheus itself, which no process of ours serves.
OUTSIDE: Final = re.compile(r"(up|kube_\w+|kubelet_\w+|container_\w+|redis_\w+)$")
_NAME: Final = re.compile(r"\b([a-z_][a-z0-9_]*)\b(?!\s*\()")
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset"})
_CLAUSE: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_TEXT: Final = re.compile(r'"[^"]*"')


class Listed(NamedTuple):
    """A row of the page: the section that it is in, the metric's name and type, and its labels."""

    section: str
    name: str
    kind: str
    labels: frozenset[str]

    @property
    def series(self) -> frozenset[str]:
        """The names that its samples have."""
        parts = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return frozenset(self.name + part for part in parts)


def listed() -> Iterator[Listed]:
    """Yield each row of the page."""
    section = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| `"):
            name, kind, labels, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            named = re.findall(r"(?:^|; )`(\w+)`", labels)
            yield Listed(section, name.strip("`"), kind, frozenset(named))


def selectors(expression: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each metric that a PromQL expression names, with the labels by which it selects its series."""
    bare = _CLAUSE.sub("", re.sub(r"\[[^\]]*\]", "", _TEXT.sub("", expression)))
    for match in re.finditer(r"(\w+)\{([^}]*)\}", bare):
        yield match[1], frozenset(re.findall(r"(\w+)\s*[=!]", match[2]))
    for name in set(_NAME.findall(re.sub(r"\w+\{[^}]*\}", "", bare))) - _WORDS:
        yield name, frozenset()


def grouped(expression: str) -> frozenset[str]:
    """Return the labels that a PromQL expression groups or matches by."""
    clauses = _CLAUSE.findall(_TEXT.sub("", expression))
    return frozenset(label.strip() for clause in clauses for label in clause.split(",") if label.strip())
