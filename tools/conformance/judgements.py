"""People's judgements on rules: which clause of a rule no test shows, what a request gets if the rule is not served
yet, or why no test shows the rule.

The judgements are in tests/conformance/<page>.txt, one rule per line:

    CL-21 partly: the clause that no test shows
    PL-900 not served: the answer that a request gets (the test that shows it)
    P-16 not shown: the reason
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple

from tools.conformance.specification import Rule

FOLDER = Path("tests/conformance")
PARTLY, NOT_SERVED, NOT_SHOWN = "partly", "not served", "not shown"
_LINE = re.compile(rf"(\S+) ({PARTLY}|{NOT_SERVED}|{NOT_SHOWN}): (\S.*)")


class Judgement(NamedTuple):
    """`kind` is PARTLY, NOT_SERVED or NOT_SHOWN; `text` the missing clause, the answer or the reason; `where` the line,
    for messages."""

    kind: str
    text: str
    where: str


def judgements(root: Path, defined: Mapping[str, Rule]) -> tuple[dict[str, Judgement], list[str]]:
    """The judgements by rule, and what is wrong with the files: a line with the wrong form, a rule that the page does
    not define, or a duplicate."""
    found: dict[str, Judgement] = {}
    errors: list[str] = []
    for path in sorted((root / FOLDER).glob("*.txt")):
        page = f"{path.stem}.md"
        if not (root / "docs/spec" / page).exists():
            continue  # a list of another kind
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            where = f"{path.relative_to(root).as_posix()}:{number}"
            match = _LINE.fullmatch(line.strip())
            if match is None:
                errors.append(
                    f"{where}: {line!r} is not a judgement; write `RULE partly: …`, "
                    "`RULE not served: …` or `RULE not shown: …`"
                )
            elif (rule := defined.get(match[1])) is None or rule.page != page:
                errors.append(f"{where}: docs/spec/{page} defines no rule {match[1]}; correct the id or the file")
            elif match[1] in found:
                errors.append(f"{where}: {match[1]} was judged in {found[match[1]].where} already; keep one line")
            else:
                found[match[1]] = Judgement(match[2], match[3], where)
    return found, errors


def wrongly_judged(found: Mapping[str, Judgement], shown: Set[str]) -> list[str]:
    """Return errors for rules judged partly shown that no counted test cites, or judged not shown that one cites."""
    errors = []
    for rule_id, judged in found.items():
        if judged.kind == PARTLY and rule_id not in shown:
            errors.append(
                f"{judged.where}: {rule_id} is partly shown, but no test that counts cites it; correct the line"
            )
        elif judged.kind == NOT_SHOWN and rule_id in shown:
            errors.append(f"{judged.where}: {rule_id} is not shown, but a test that counts cites it; take the line out")
    return errors
