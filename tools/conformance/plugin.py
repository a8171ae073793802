"""A pytest plugin: `--conformance` fails a whole run that does not show every rule.

Each test that counts as showing a rule must run and pass, and each rule must be cited by one or be listed as not shown.
A test that was skipped for a reason that tests/permitted_skips.txt permits is printed at the end and does not fail the
run, except with `--strict-skips`, as in CI. Under xdist the main process sees the reports of all others and judges;
they send it what the tests cite.
`--conformance-out FILE` writes what the collected tests cite, for `python -m tools.conformance`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tiers import SLOW, tier_of
from tools.conformance.citations import Cited, name_of, read
from tools.conformance.page import SUMMARY, errors
from tools.conformance.skips import PERMITTED, matches, permitted, reason_of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("conformance")
    group.addoption("--conformance", action="store_true", help="every rule must be shown, by tests that run and pass")
    group.addoption("--conformance-out", metavar="FILE", help="write what the collected tests cite, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the part for this process: only the one that sees every report judges."""
    if config.getoption("--conformance"):
        watcher = Collected() if hasattr(config, "workerinput") else Passed(config)
        config.pluginmanager.register(watcher, "conformance-of-the-run")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write what is cited, after all other plugins have deselected tests."""
    if out := session.config.getoption("--conformance-out"):
        write(Path(out), read(session.items, session.config.rootpath))


def write(path: Path, cited: Cited) -> None:
    """Store what is cited; `load` reads it."""
    path.write_text(dumps(cited), encoding="utf-8")


def load(path: Path) -> Cited:
    """Return what `write` stored."""
    return loads(path.read_text(encoding="utf-8"))


def dumps(cited: Cited) -> str:
    """Return the citations as JSON."""
    kept = {
        "shown_by": {rule_id: sorted(tests) for rule_id, tests in cited.shown_by.items()},
        "skippable": {rule_id: sorted(tests) for rule_id, tests in cited.skippable.items()},
        "watched_by": {rule_id: sorted(tests) for rule_id, tests in cited.watched_by.items()},
        "errors": cited.errors,
    }
    return json.dumps(kept)


def loads(text: str) -> Cited:
    """Return what `dumps` was given."""
    kept = json.loads(text)

    def sets(name: str) -> dict[str, set[str]]:
        return defaultdict(set, {rule_id: set(tests) for rule_id, tests in kept[name].items()})

    return Cited(sets("shown_by"), sets("skippable"), sets("watched_by"), kept["errors"])


#: The key under which a process that runs tests sends the main process what they cite.
_SENT: Final = "conformance"


class Collected:
    """Sends what the tests cite to the main process. Used in processes that xdist has started."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Send it before other plugins or `--deselect` remove tests: removed ones count as cited, but not as passed."""
        config.workeroutput[_SENT] = dumps(read(items, config.rootpath))  # type: ignore[attr-defined]  # xdist's


class Passed:
    """Records the outcome of each test, and judges at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        #: By test without parameters: "passed", or the first other outcome of any part of it.
        self._outcomes: dict[str, str] = {}
        #: By test without parameters: the permitted reason why it, or a part of it, was skipped.
        self._skipped: dict[str, str] = {}
        #: None until the tests are collected, here or in another process.
        self._cited: Cited | None = None
        self._tier = config.getoption("--tier", default=None)
        strict = config.getoption("--strict-skips", default=False)
        self._permitted = () if strict else permitted(config.rootpath / PERMITTED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Any part of a test that did not pass outweighs those that did."""
        test = name_of(report.nodeid)
        if report.skipped and not hasattr(report, "wasxfail") and matches(reason_of(report), self._permitted):
            self._skipped.setdefault(test, reason_of(report))
        elif report.outcome != "passed" or hasattr(report, "wasxfail"):
            self._outcomes[test] = report.outcome if report.outcome != "passed" else "expected to fail"
        elif report.when == "call":
            self._outcomes.setdefault(test, "passed")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """As in `Collected`, for runs in a single process."""
        self._cited = read(items, self._config.rootpath)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Every process collects all tests; the first that ends suffices, and one that crashed has sent nothing."""
        if self._cited is None and (sent := getattr(node, "workeroutput", {}).get(_SENT)):
            self._cited = loads(sent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report what is missing as one more failed test, so that the summary line counts it."""
        if self._cited is None:
            missing = ["  no process has collected the tests; see its error above"]
        else:
            outcomes = {**dict.fromkeys(self._skipped, "passed"), **self._outcomes}
            # The daily tests show every rule; the slow ones alone need not.
            wrong = [] if self._tier == SLOW else errors(self._config.rootpath, self._cited)
            missing = [*(f"  {error}" for error in wrong), *unshown(self._counted(), outcomes)]
        if missing:
            text = "\n".join(["This run does not show every rule that it should show:", *missing])
            report = pytest.TestReport(str(SUMMARY), (str(SUMMARY), None, ""), {}, "failed", text, "call")
            self._config.hook.pytest_runtest_logreport(report=report)
            session.testsfailed += 1
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what this machine could not show, with the reasons."""
        if lines := not_shown_here(self._counted(), self._skipped):
            terminalreporter.section("not shown on this machine")
            for line in lines:
                terminalreporter.write_line(line)

    def _counted(self) -> dict[str, set[str]]:
        """The tests in this run that count as showing something, with their rules."""
        tests = {} if self._cited is None else self._cited.tests()
        return {test: rules for test, rules in tests.items() if self._tier in (None, tier_of(test))}


def not_shown_here(counts: Mapping[str, set[str]], skipped: Mapping[str, str]) -> Sequence[str]:
    """Lines for a person: why tests were skipped, how many, and the rules that only they would have shown."""
    if not skipped:
        return []
    lines = [f"  {count} skipped: {reason}" for reason, count in sorted(Counter(skipped.values()).items())]
    shown_else = {rule for test, rules in counts.items() if test not in skipped for rule in rules}
    alone = sorted({rule for test in skipped for rule in counts.get(test, ())} - shown_else)
    if alone:
        lines.append(f"  These rules are shown by no other test: {', '.join(alone)}")
    return lines


def unshown(counts: Mapping[str, set[str]], outcomes: Mapping[str, str]) -> list[str]:
    """A line for each test that counts and did not pass, with what to do."""
    lines = []
    for test, cited in sorted(counts.items()):
        outcome = outcomes.get(test, "not run")
        if outcome != "passed":
            lines.append(
                f"  {test}: {outcome}, so it does not show {', '.join(sorted(cited))}; let it run and pass, "
                "or take the citation out, or name it in tests/conformance/may_skip.txt"
            )
    return lines
