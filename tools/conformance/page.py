"""docs/conformance.md: for each rule its state, the tests that show it, and the checkers that watch it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.conformance.citations import Cited, checker_of, linked, links
from tools.conformance.judgements import FOLDER, PARTLY, Judgement, judgements, stale
from tools.conformance.specification import SPEC, Rule, known, rules

PAGE = Path("docs/conformance.md")
SHOWN, PARTLY_SHOWN, NOT_JUDGED = "shown", "partly shown", "not judged"
NOT_SERVED, NOT_SHOWN = "not served", "not shown"
STATES = (SHOWN, PARTLY_SHOWN, NOT_JUDGED, NOT_SERVED, NOT_SHOWN)
#: Comes before the tests of a row that do not count.
MAYBE = "may be skipped: "


def errors(root: Path, cited: Cited) -> list[str]:
    """What is wrong with the markers and the judgements; the page is not written before it is mended."""
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
    return [*cited.errors, *unknown, *wrong, *stale(judged, cited.shown_by.keys())]


def state_of(root: Path, rule: Rule, cited: Cited, judged: Mapping[str, Judgement]) -> str:
    """One of STATES."""
    judgement = judged.get(rule.id)
    if judgement is not None and judgement.kind != PARTLY:
        return NOT_SERVED
    if not cited.shown_by.get(rule.id):
        return NOT_SHOWN
    if not (root / FOLDER / rule.page).with_suffix(".txt").exists():
        return NOT_JUDGED
    return SHOWN if judgement is None else PARTLY_SHOWN


def render(root: Path, cited: Cited) -> str:
    """The whole page."""
    every = rules(root / SPEC)
    judged, _ = judgements(root, every)
    pages: dict[str, list[Rule]] = defaultdict(list)
    for rule in every.values():
        pages[rule.page].append(rule)
    states = {rule.id: state_of(root, rule, cited, judged) for rule in every.values()}
    lines = [
        "# Conformance",
        "",
        "How far tests show each rule of [the specification](spec/). Written by `make docs` from the tests that pytest",
        "collects and from what was judged of them in `tests/conformance`; do not edit.",
        "",
        "- *shown*: each clause of the rule is seen to hold by the tests named.",
        "- *partly shown*: but for the clause named.",
        "- *not judged*: tests cite it; whether they show all of it was not judged yet.",
        "- *not served*: no service does this yet; the answer that a request gets is named. Tests of parts that are",
        "  not served show nothing.",
        "- *not shown*: no test; it may be carried out all the same.",
        "",
        "A test counts when it cites the rule by itself, not by its module or class. CI fails when one of them did",
        "not run, or did not pass; `make test` elsewhere permits skips for what a machine lacks, and prints them.",
        "Tests that CI may skip too (`tests/conformance/may_skip.txt`) do not count and say so. *Watched by* are the",
        "judges that look for a breach of the rule in every history, and have a test of their own that feeds them one.",
        "",
        *_figures(pages, states),
    ]
    for page in sorted(pages):
        lines += _section(page, sorted(pages[page], key=lambda rule: _order(rule.id)), cited, judged, states)
    return "\n".join(lines) + "\n"


def _figures(pages: Mapping[str, Sequence[Rule]], states: Mapping[str, str]) -> list[str]:
    lines = [
        f"| Page | Rules | {' | '.join(state.capitalize() for state in STATES)} |",
        "|---" * (2 + len(STATES)) + "|",
    ]
    for page in sorted(pages):
        lines.append(_figure(page, [states[rule.id] for rule in pages[page]]))
    return [*lines, _figure("all", list(states.values()))]


def _figure(page: str, states: Sequence[str]) -> str:
    count = Counter(states)
    return f"| {page} | {len(states)} | {' | '.join(str(count[state]) for state in STATES)} |"


def _section(
    page: str, found: Sequence[Rule], cited: Cited, judged: Mapping[str, Judgement], states: Mapping[str, str]
) -> list[str]:
    lines = ["", f"## {page}", "", f"See [{page}](spec/{page})."]
    told = [rule for rule in found if states[rule.id] != NOT_SHOWN or cited.watched_by.get(rule.id)]
    if told:
        lines += ["", "| Rule | It begins | State | Tests | Watched by |", "|---|---|---|---|---|"]
        lines += [_row(rule, cited, judged, states[rule.id]) for rule in told]
    if rest := [rule.id for rule in found if rule not in told]:
        lines += ["", "Not shown: " + ", ".join(rest) + "."]
    return lines


def _row(rule: Rule, cited: Cited, judged: Mapping[str, Judgement], state: str) -> str:
    judgement = judged.get(rule.id)
    told = {PARTLY_SHOWN: "partly, but for: ", NOT_SERVED: "not served: "}.get(state, state)
    if judgement is not None:
        told += judgement.text.replace("|", "\\|").replace("<", "&lt;")
    tests = links(cited.shown_by.get(rule.id, ()))
    if maybe := links(cited.skippable.get(rule.id, ())):
        tests += f"{'<br>' if tests else ''}{MAYBE}{maybe}"
    watched = ", ".join(sorted({str(checker_of(test)) for test in cited.watched_by.get(rule.id, ())}))
    return f"| {rule.id} | {rule.title} | {told} | {tests} | {watched} |"


def counted(text: str) -> dict[str, set[str]]:
    """Each test that the page counts as showing something, with the rules; from the page's own text."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        # A row has five cells, and an end on either side.
        if len(cells) == 7 and cells[3].startswith((SHOWN, "partly", NOT_JUDGED)):
            for test in linked(cells[4].partition(MAYBE)[0]):
                found[test].add(cells[1])
    return found


def _order(rule_id: str) -> tuple[str, int, str]:
    match = re.fullmatch(r"(.*?)-?(\d+)([a-z]?)", rule_id)
    return (match[1], int(match[2]), match[3]) if match else (rule_id, 0, "")
