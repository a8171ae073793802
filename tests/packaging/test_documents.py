"""Everything that the documents point to exists."""

import re

import pytest

from tests.packaging.test_tidy import ROOT, tracked

DOCUMENTS = [path.relative_to(ROOT).as_posix() for path in tracked(".md")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_link_to_a_file_leads_to_one(document: str) -> None:
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_functions_that_the_pipelines_page_lists_are_there() -> None:
    page = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")
    table = page[page.index("\n## Metrics\n") :].split("\n\n- ")[0]
    listed = set(re.findall(r"`(\w+)\(", table))
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pipeline/share_metrics").rglob("*.py"))
    assert len(listed) > 10
    assert [name for name in sorted(listed) if f"def {name}(" not in code] == []
