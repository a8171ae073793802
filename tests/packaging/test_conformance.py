"""The conformance page is what the markers say, and markers cite rules that exist."""

from pathlib import Path

import pytest

from tools import conformance

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / conformance.PAGE).read_text(encoding="utf-8")
    up_to_date = written == conformance.render(ROOT)
    assert up_to_date, f"{conformance.PAGE} is not what the tests' markers say now; run: make docs"


def test_every_cited_rule_stands_in_the_specification() -> None:
    assert conformance.unknown(ROOT) == {}, "tests cite ids that docs/spec does not know; correct the markers"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "docs/spec").mkdir(parents=True)
    (tmp_path / "docs/spec/a.md").write_text(
        "## 1. Rules (GC-59a; keys)\n| GC-1 | Shard of a group \\| more |\n- **CM-2** Node list\n"
        "| T4 | Acquired | ACCEPT |\n| 12.000 | B leaves |\n## 12. Open points\n| 12.3 | First write | see T5, 12.2 |\n"
        "**Read** — SC-37: returns all. SC-38: if equal\nSC-20…SC-22 = rows 1–3.\nsee GC-77 for more\n"
    )
    scenarios = tmp_path / "tests/scenarios"
    scenarios.mkdir(parents=True)
    (scenarios / "s.txt").write_text("# SC-38\n")
    (tmp_path / "tests/test_a.py").write_text(
        'import pytest\npytestmark = pytest.mark.rule("CM-2")\n\n'
        '@pytest.mark.rule("GC-1", "SC-20")\nclass TestThing:\n    def test_one(self): pass\n\n'
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.scenario("GC-59a"))])\n'
        "def test_two(x): pass\n\ndef helper(): pass\n\n"
        '@pytest.mark.rule("SC-37")\nclass TestMachine(Machine):\n    def add(self): pass\n'
    )
    return tmp_path


def test_rules_are_found_where_the_specification_defines_them(small: Path) -> None:
    found = conformance.rules(small / "docs/spec")
    assert set(found) == {"GC-59a", "GC-1", "CM-2", "T4", "12.3", "SC-37", "SC-38", "SC-20", "SC-21", "SC-22"}
    assert found["CM-2"].title == "Node list"
    assert found["12.3"].title == "First write see T5, 12.2"


def test_markers_of_modules_classes_functions_and_parameters_count(small: Path) -> None:
    cited = conformance.citations(small / "tests")
    assert cited["GC-1"] == {"tests/test_a.py::TestThing.test_one"}
    assert cited["GC-59a"] == {"tests/test_a.py::test_two"}
    assert cited["SC-37"] == {"tests/test_a.py::TestMachine"}
    assert "tests/test_a.py::test_two" in cited["CM-2"]
    assert "tests/test_a.py::TestThing.test_one" in cited["CM-2"]
    assert not any("helper" in test for tests in cited.values() for test in tests)


def test_transcripts_cite_rules_too(small: Path) -> None:
    assert conformance.citations(small / "tests")["SC-38"] == {"tests/scenarios/s.txt"}


def test_a_misspelt_rule_is_found(small: Path) -> None:
    (small / "tests/test_b.py").write_text('import pytest\n\n@pytest.mark.rule("GC-999")\ndef test_it(): pass\n')
    assert conformance.unknown(small) == {"GC-999": {"tests/test_b.py::test_it"}}
