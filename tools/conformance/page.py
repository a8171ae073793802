"""How far tests show each rule: a summary for the repository, and the whole page, with the tests, for build/.

The summary names no tests: it changes when a rule or what is not shown of it changes, not with each new test.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.conformance.citations import Cited, checker_of, links
from tools.conformance.judgements import FOLDER, NOT_SERVED, NOT_SHOWN, PARTLY, Judgement, judgements, wrongly_judged
from tools.conformance.specification import SPEC, Rule, known, rules

SUMMARY = Path("docs/contributing/conformance.md")
WHOLE = Path("build/conformance.md")
SHOWN, PARTLY_SHOWN = "shown", "partly shown"
STATES = (SHOWN, PARTLY_SHOWN, NOT_SERVED, NOT_SHOWN)
#: Precedes the tests in a row that do not count.
MAYBE = "may be skipped: "
_MEANINGS = (
    "- *shown*: the tests that cite the rule show each of its clauses.",
    "- *partly shown*: they show all but the clause named after *shown, except*.",
    "- *not served*: no service does this yet; the answer that a request gets is named. Tests of parts that are",
    "  not served show nothing.",
    "- *not shown*: no test shows it, for the reason named; it may be carried out all the same.",
)


def errors(root: Path, cited: Cited) -> list[str]:
    """Return what is wrong with the markers and the judgements; nothing is written until it is fixed."""
    every = rules(root / SPEC)
    judged, wrong = judgements(root, every)
    ids = known(root / SPEC)
    unknown = [
        f"{test} cites {rule_id}, which docs/spec does not contain; correct the marker"
        for tests in (cited.shown_by, cited.skippable, cited.watched_by)
        for rule_id, names in sorted(tests.items())
        for test in sorted(names)
        if rule_id not in ids
    ]
    shown = {rule_id for rule_id, tests in cited.shown_by.items() if tests}
    uncited = [
        f"no test that counts cites {rule.id} of {SPEC}/{rule.page}; cite it at the test that shows it, or write "
        f"`{rule.id} {NOT_SHOWN}: the reason` in {judgements_of(rule)}"
        for rule in every.values()
        if rule.id not in shown and rule.id not in judged
    ]
    unjudged = [
        f"docs/spec/{page} was not judged: write what its tests leave unshown to {file}"
        for page, file in sorted({(rule.page, judgements_of(rule)) for rule in every.values()})
        if not (root / file).exists()
    ]
    return [*cited.errors, *unknown, *wrong, *wrongly_judged(judged, shown), *uncited, *unjudged]


def judgements_of(rule: Rule) -> str:
    """Return the file with the judgements on a rule."""
    return (FOLDER / rule.page).with_suffix(".txt").as_posix()


def state_of(rule: Rule, judged: Mapping[str, Judgement]) -> str:
    """Return one of STATES. Only valid if `errors` found nothing, since then every rule is cited or judged."""
    judgement = judged.get(rule.id)
    if judgement is None:
        return SHOWN
    return PARTLY_SHOWN if judgement.kind == PARTLY else judgement.kind


def summary(root: Path) -> str:
    """Return the page in the repository: how many rules are shown, and everything that is not."""
    pages, judged = _pages(root)
    lines = [
        "# Conformance",
        "",
        "How far tests show each rule of [the specification](../spec/), and what they do not show. `make docs`",
        "writes this page from the specification and from `tests/conformance`; do not edit. `make conformance` writes",
        f"which test shows which rule to `{WHOLE}`.",
        "",
        *_MEANINGS,
        "",
        "A test counts when it cites the rule by itself, not by its module or class. `make test` fails when one that",
        "counts did not run or did not pass, when a rule is neither cited nor listed here, and when this page is not",
        "up to date. A machine may lack what a test needs (`tests/permitted_skips.txt`): then the run prints which",
        "rules it did not show. Tests that CI may skip too (`tests/conformance/may_skip.txt`) do not count.",
        "",
        *_figures(pages, judged),
    ]
    for page, found in pages.items():
        if rest := [rule for rule in found if rule.id in judged]:
            lines += ["", f"## {page}", "", f"| [Rule](../spec/{page}) | It begins | State |", "|---|---|---|"]
            lines += [f"| {rule.id} | {rule.title} | {_judgement(judged[rule.id])} |" for rule in rest]
    return "\n".join(lines) + "\n"


def whole(root: Path, cited: Cited) -> str:
    """Return the generated page with each rule, the tests that show it, and the checkers that watch it."""
    pages, judged = _pages(root)
    lines = [
        "# Conformance, test by test",
        "",
        "Which test shows which rule of [the specification](../docs/spec/). Written by `make conformance` from the",
        "tests that pytest collects and from the judgements in `tests/conformance`.",
        "",
        *_MEANINGS,
        "",
        "Tests that CI may skip do not count and are marked so. *Watched by* are the checkers that search every",
        "history for a breach of the rule; each has a test of its own that feeds it one.",
        "",
        *_figures(pages, judged),
    ]
    for page, found in pages.items():
        lines += ["", f"## {page}", "", f"See [{page}](../docs/spec/{page}).", ""]
        lines += ["| Rule | It begins | State | Tests | Watched by |", "|---|---|---|---|---|"]
        lines += [_row(rule, cited, judged) for rule in found]
    return "\n".join(lines) + "\n"


def _pages(root: Path) -> tuple[dict[str, list[Rule]], dict[str, Judgement]]:
    """Return the rules by page, both in order, and the judgements."""
    every = rules(root / SPEC)
    judged, _ = judgements(root, every)
    pages: dict[str, list[Rule]] = defaultdict(list)
    for rule in sorted(every.values(), key=lambda rule: (rule.page, _order(rule.id))):
        pages[rule.page].append(rule)
    return pages, judged


def _figures(pages: Mapping[str, Sequence[Rule]], judged: Mapping[str, Judgement]) -> list[str]:
    states = {page: [state_of(rule, judged) for rule in found] for page, found in pages.items()}
    return [
        f"| Page | Rules | {' | '.join(state.capitalize() for state in STATES)} |",
        "|---" * (2 + len(STATES)) + "|",
        *(_figure(page, found) for page, found in states.items()),
        _figure("all", [state for found in states.values() for state in found]),
    ]


def _figure(page: str, states: Sequence[str]) -> str:
    count = Counter(states)
    return f"| {page} | {len(states)} | {' | '.join(str(count[state]) for state in STATES)} |"


def _judgement(judgement: Judgement) -> str:
    kind = "shown, except" if judgement.kind == PARTLY else judgement.kind
    return f"{kind}: " + judgement.text.replace("|", "\\|").replace("<", "&lt;")


def _row(rule: Rule, cited: Cited, judged: Mapping[str, Judgement]) -> str:
    state = _judgement(judged[rule.id]) if rule.id in judged else SHOWN
    tests = links(cited.shown_by.get(rule.id, ()))
    if maybe := links(cited.skippable.get(rule.id, ())):
        tests += f"{'<br>' if tests else ''}{MAYBE}{maybe}"
    watched = ", ".join(sorted({str(checker_of(test)) for test in cited.watched_by.get(rule.id, ())}))
    return f"| {rule.id} | {rule.title} | {state} | {tests} | {watched} |"


def _order(rule_id: str) -> tuple[str, int, str]:
    match = re.fullmatch(r"(.*?)-?(\d+)([a-z]?)", rule_id)
    return (match[1], int(match[2]), match[3]) if match else (rule_id, 0, "")
