"""The rules of docs/spec: where each is defined, and its first words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SPEC = Path("docs/spec")

ID = r"(?:(?:INV|S|PL|GC|CL|CT|OP|SC|SR|CM|PM|KL|P)-\d+[a-j]?|[VX]\d+[a-j]?)"
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


def known(spec: Path) -> frozenset[str]:
    """Every id that the pages in the folder `spec` contain, defined or only mentioned."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in spec.glob("*.md"))
    return frozenset(_TOKEN.findall(text)) | frozenset(rules(spec))
