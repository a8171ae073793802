"""Every rule is cited or listed as not shown, the summary is up to date, and only what ran and passed counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import DAILY, listed, tier_of
from tools.conformance import __main__ as command
from tools.conformance import page
from tools.conformance.citations import Cited, read
from tools.conformance.plugin import load, unshown, write
from tools.conformance.specification import SPEC, rules

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cited(request: pytest.FixtureRequest) -> Cited:
    """Return the rules that all tests cite: from this run if it collected every test, else from a separate
    collection."""
    whole = {"tests/attack", "tests/unit", "tests/integration"}
    items = request.session.items
    folders = {"/".join(item.nodeid.split("/")[:2]) for item in items}
    words = (
        request.config.getoption("keyword"),
        request.config.getoption("markexpr"),
        request.config.getoption("deselect"),
        request.config.getoption("tier"),
    )
    return read(items, ROOT) if whole <= folders and not any(words) else command.collected(ROOT)


def test_markers_and_judgements_are_in_order(cited: Cited) -> None:
    assert page.errors(ROOT, cited) == []


def test_the_summary_is_up_to_date() -> None:
    up_to_date = (ROOT / page.SUMMARY).read_text(encoding="utf-8") == page.summary(ROOT)
    assert up_to_date, f"{page.SUMMARY} is not what docs/spec and tests/conformance say now; run: make docs"


def test_the_summary_names_every_rule_that_is_not_wholly_shown_and_no_test(cited: Cited) -> None:
    text = page.summary(ROOT)
    named = {line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")}
    assert rules(ROOT / SPEC).keys() - cited.shown_by.keys() <= named
    assert len(cited.tests()) > 1000
    assert "test_" not in text.replace("(test_", ""), "it would change with each test"


def test_every_rule_that_a_test_shows_is_shown_by_a_daily_one_and_no_line_is_there_for_nothing(cited: Cited) -> None:
    by_daily = {rule: {test for test in tests if tier_of(test) == DAILY} for rule, tests in cited.shown_by.items()}
    missing = sorted(rule for rule, tests in by_daily.items() if not tests)
    assert not missing, "`make test` shows them no more: add a line `daily` to tests/tiers.txt for one test of each"
    for line in listed():
        if line.kind == DAILY and line.reason.startswith("for "):
            alone = {rule for rule, tests in by_daily.items() if tests == {f"tests/{line.prefix}"}}
            assert {f"{line.reason[4:]}"} == {", ".join(sorted(alone))}, f"correct or drop the line of {line.prefix}"


TESTS = """
import pytest

@pytest.mark.rule("GC-1")
def test_good(): pass

@pytest.mark.rule("CM-2")
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.rule("SC-20")), 3])
def test_parts(x): assert x != BAD

@pytest.mark.rule("SC-21")
def helper(): pass

class TestMachine(__import__("unittest").TestCase):
    pytestmark = pytest.mark.rule("SC-22")
    def runTest(self): pass

@pytest.mark.rule("SC-37")
@pytest.mark.skipif(SKIP, reason="planted")
def test_may_skip(): pass
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a project with a specification, a few tests and judgements."""
    (tmp_path / "docs/spec").mkdir(parents=True)
    (tmp_path / "docs/spec/a.md").write_text(
        "## 1. Rules (GC-59a; keys)\n| GC-1 | Shard of a group \\| more |\n- **CM-2** Node list\n"
        "| T4 | Acquired | ACCEPT |\n| 12.000 | B leaves |\n## 12. Open points\n| 12.3 | First write | see T5, 12.2 |\n"
        "**Read** — SC-37: returns all. SC-38: if equal\nSC-20…SC-22 = rows 1–3.\nsee GC-77 for more\n"
    )
    (tmp_path / "tests/conformance").mkdir(parents=True)
    (tmp_path / "tests/conformance/a.txt").write_text(
        "# judged\nCM-2 partly: of <two> | lists\nSC-38 not served: refused\n"
        "GC-59a not shown: a title\nT4 not shown: a title\n12.3 not shown: an open point\nSC-21 not shown: too slow\n"
    )
    (tmp_path / "tests/test_a.py").write_text(TESTS.replace("BAD", "0").replace("SKIP", "False"))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    rule\n    scenario\n")
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin, in the small project."""
    own = [
        "-p",
        "tools.conformance.plugin",
        "-p",
        "no:cacheprovider",
        *(["-p", "xdist.plugin"] if "-n" in words else []),
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *own, *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def collect(folder: Path) -> Cited:
    out = folder / "cited.json"
    done = run(folder, "--collect-only", "-q", f"--conformance-out={out}", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    return load(out)


def test_rules_are_found_where_the_specification_defines_them(small: Path) -> None:
    found = rules(small / "docs/spec")
    assert set(found) == {"GC-59a", "GC-1", "CM-2", "T4", "12.3", "SC-37", "SC-38", "SC-20", "SC-21", "SC-22"}
    assert found["CM-2"].title == "Node list"
    assert found["12.3"].title == "First write see T5, 12.2"


def test_only_what_reaches_a_test_counts(small: Path) -> None:
    cited = collect(small)
    assert dict(cited.shown_by) == {
        "GC-1": {"tests/test_a.py::test_good"},
        "CM-2": {"tests/test_a.py::test_parts"},
        "SC-20": {"tests/test_a.py::test_parts"},
        "SC-22": {"tests/test_a.py::TestMachine::runTest"},
        "SC-37": {"tests/test_a.py::test_may_skip"},
    }
    assert cited.errors == []


def test_states_missing_clauses_and_answers_are_on_both_pages(small: Path) -> None:
    cited = collect(small)
    assert page.errors(small, cited) == []
    for text in (page.summary(small), page.whole(small, cited)):
        assert "| a.md | 10 | 4 | 1 | 1 | 4 |" in text
        assert "| CM-2 | Node list | shown, except: of &lt;two> \\| lists |" in text
        assert "| SC-38 | if equal | not served: refused |" in text
        assert "| not shown: too slow |" in text
    assert "| lists | [test_parts](../tests/test_a.py) |" in page.whole(small, cited)
    assert cited.tests()["tests/test_a.py::test_parts"] == {"CM-2", "SC-20"}


def test_the_summary_does_not_change_with_one_more_test(small: Path) -> None:
    before, whole = page.summary(small), page.whole(small, collect(small))
    (small / "tests/test_b.py").write_text("import pytest\n@pytest.mark.rule('GC-1')\ndef test_b(): pass\n")
    assert page.whole(small, collect(small)) != whole
    assert page.summary(small) == before


def test_what_may_be_skipped_shows_nothing_on_any_machine(small: Path) -> None:
    (small / "tests/conformance/may_skip.txt").write_text("# needs luck\ntests/test_a.py::test_may\n")
    cited = collect(small)
    assert "SC-37" not in cited.shown_by
    assert cited.skippable["SC-37"] == {"tests/test_a.py::test_may_skip"}
    assert "tests/test_a.py::test_may_skip" not in cited.tests()
    (error,) = page.errors(small, cited)
    assert error.startswith("no test that counts cites SC-37")


def test_tests_of_checkers_are_listed_separately(small: Path) -> None:
    (small / "tests/simulation").mkdir()
    (small / "tests/simulation/test_checkers_x.py").write_text(
        "import pytest\npytestmark = pytest.mark.rule('GC-59a')\ndef test_bad(): pass\n"
    )
    cited = collect(small)
    assert "GC-59a" not in cited.shown_by
    assert cited.errors == []
    assert "| not shown: a title |  | simulator |" in page.whole(small, cited)


@pytest.mark.parametrize(
    ("where", "text", "said"),
    [
        (
            "tests/test_b.py",
            "import pytest\npytestmark = pytest.mark.rule('GC-1')\ndef test_b(): pass\n",
            "at the tests that",
        ),
        ("tests/test_b.py", "import pytest\n@pytest.mark.rule('GC-999')\ndef test_b(): pass\n", "cites GC-999"),
        ("tests/conformance/a.txt", "GC-999 partly: x\n", "defines no rule GC-999"),
        ("tests/conformance/a.txt", "GC-1 mostly: x\n", "is not a judgement"),
        ("tests/conformance/a.txt", "CM-2 partly: x\n", "judged in tests/conformance/a.txt:"),
        ("tests/conformance/a.txt", "SC-37 not shown: x\n", "SC-37 is not shown, but a test"),
        ("docs/spec/a.md", "- **SC-40** New\n", "no test that counts cites SC-40 of docs/spec/a.md; cite it"),
    ],
)
def test_what_is_wrong_is_named(small: Path, where: str, text: str, said: str) -> None:
    with (small / where).open("a") as file:
        file.write(text)
    (error,) = page.errors(small, collect(small))
    assert said in error
    assert where in error


def test_nothing_is_shown_partly_by_no_test(small: Path) -> None:
    judged = small / "tests/conformance/a.txt"
    judged.write_text(judged.read_text().replace("SC-21 not shown", "SC-21 partly"))
    (error,) = page.errors(small, collect(small))
    assert "SC-21 is partly shown, but no test that counts cites it" in error


def test_a_page_that_was_not_judged_is_named(small: Path) -> None:
    (small / "docs/spec/b.md").write_text("- **SC-20** Moved\n")
    (small / "docs/spec/a.md").write_text((small / "docs/spec/a.md").read_text().replace("SC-20…SC-22", "SC-21…SC-22"))
    (error,) = page.errors(small, collect(small))
    assert error.startswith("docs/spec/b.md was not judged")


def test_a_run_that_collects_too_little_fails(small: Path) -> None:
    """For example, if the folder with the only test of a rule is left out."""
    done = run(small, "--conformance", "tests/test_a.py")
    assert done.returncode == 0, done.stdout + done.stderr
    (small / "tests/test_b.py").write_text("def test_b(): pass\n")
    for more in ((), ("-n", "1")):
        done = run(small, "--conformance", *more, "tests/test_b.py")
        assert done.returncode == 1
        assert "no test that counts cites GC-1 " in done.stdout


@pytest.mark.parametrize(
    ("bad", "skip", "more", "said"),
    [
        ("0", "True", (), "test_may_skip: skipped, so it does not show SC-37"),
        ("2", "False", (), "test_parts: failed, so it does not show CM-2, SC-20"),
        ("0", "False", ("--deselect", "tests/test_a.py::test_good"), "test_good: not run, so it does not show GC-1"),
        ("0", "True", ("-n", "1"), "test_may_skip: skipped, so it does not show SC-37"),
        ("0", "False", (), ""),
    ],
)
def test_a_run_fails_unless_all_that_counts_passed(
    small: Path, bad: str, skip: str, more: tuple[str, ...], said: str
) -> None:
    (small / "tests/test_a.py").write_text(TESTS.replace("BAD", bad).replace("SKIP", skip))
    done = run(small, "--conformance", *more, "tests")
    assert done.returncode == (1 if said else 0), done.stdout + done.stderr
    assert said in done.stdout
    if said:
        assert "1 failed" in done.stdout.splitlines()[-1] or "2 failed" in done.stdout.splitlines()[-1]
    assert run(small, *more, "tests").returncode == (1 if bad != "0" else 0)


def test_a_permitted_skip_is_printed_and_fails_nothing(small: Path) -> None:
    """For example, on a machine without iptables: `make test` passes there, and reports what it did not show."""
    (small / "tests/permitted_skips.txt").write_text("# a machine may have no luck\nplant.*\n")
    (small / "tests/test_a.py").write_text(TESTS.replace("BAD", "0").replace("SKIP", "True"))
    for more in ((), ("-n", "1")):
        done = run(small, "--conformance", *more, "tests")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "  1 skipped: planted\n" in done.stdout
        assert "  These rules are shown by no other test: SC-37\n" in done.stdout
        assert "1 skipped" in done.stdout.splitlines()[-1]


def test_a_permitted_skip_fails_where_skips_are_strict(small: Path) -> None:
    """The page states what CI shows, so no test that it relies on may be skipped there."""
    (small / "tests/permitted_skips.txt").write_text("plant.*\n")
    (small / "tests/test_a.py").write_text(TESTS.replace("BAD", "0").replace("SKIP", "True"))
    (small / "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--strict-skips', action='store_true')\n"
    )
    done = run(small, "--conformance", "--strict-skips", "tests")
    assert done.returncode == 1
    assert "test_may_skip: skipped, so it does not show SC-37" in done.stdout


def test_a_test_that_failed_beside_a_permitted_skip_still_fails(small: Path) -> None:
    """One test with several parameters: one case is skipped, another one fails."""
    part = '@pytest.mark.skipif(SKIP, reason="planted")\ndef test_may_skip(): pass'
    both = (
        "@pytest.mark.parametrize('part', [pytest.param(0, marks=pytest.mark.skip(reason='planted')), 1])\n"
        "def test_may_skip(part): assert BAD"
    )
    (small / "tests/permitted_skips.txt").write_text("planted\n")
    assert part in TESTS
    (small / "tests/test_a.py").write_text(TESTS.replace(part, both).replace("BAD", "0"))
    done = run(small, "--conformance", "tests")
    assert done.returncode == 1
    assert "test_may_skip: failed, so it does not show SC-37" in done.stdout


def test_what_was_kept_is_read_back(tmp_path: Path) -> None:
    cited = Cited()
    cited.shown_by["GC-1"] |= {"tests/a.py::test_b"}
    cited.errors.append("one")
    write(tmp_path / "kept.json", cited)
    assert load(tmp_path / "kept.json") == cited
    assert unshown(cited.tests(), {"tests/a.py::test_b": "passed"}) == []
