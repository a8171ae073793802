"""Every link target in the documents exists, and the index names every page."""

import re
from pathlib import Path

import click
import pytest

from sharegroups.cli.main import main
from tests.packaging.test_tidy import ROOT, name_of, tracked

DOCUMENTS = [path.relative_to(ROOT).as_posix() for path in tracked(".md")]
PARAGRAPH_MAX = 600


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_link_to_a_file_leads_to_one(document: str) -> None:
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_link_to_a_heading_leads_to_one(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", path.read_text(encoding="utf-8"))
    headings = {name: headings_of(path.parent / name if name else path) for name, _ in links}
    assert [(name, anchor) for name, anchor in links if anchor not in headings[name]] == []


def headings_of(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub writes them."""
    titles = re.findall(r"(?m)^#+ (.*)$", path.read_text(encoding="utf-8")) if path.suffix == ".md" else []
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs/README.md"
    targets = re.findall(r"\]\(([^)#:\s]+)\)", index.read_text(encoding="utf-8"))
    named = {(index.parent / target).resolve() for target in targets}
    pages = [path for path in tracked(".md") if path.is_relative_to(ROOT / "docs") and path != index]
    assert [name_of(path) for path in pages if path not in named and path.parent not in named] == []


@pytest.mark.parametrize("page", [name for name in DOCUMENTS if name.startswith("docs/spec/")])
def test_a_paragraph_of_the_specification_is_short_enough_to_be_cited(page: str) -> None:
    """A longer one must be split into clauses (a), (b), …, so that code and tests can cite each of them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"))
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.|\())", text)
    assert [paragraph[:60] for paragraph in paragraphs if len(paragraph.strip()) > PARAGRAPH_MAX] == []


def test_the_page_of_commands_names_every_command() -> None:
    words = set(re.findall(r"[a-z-]+", (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")))
    named = main.list_commands(click.Context(main))
    assert len(named) > 15
    assert [name for name in named if name not in words] == []


def test_the_functions_that_the_pipelines_page_lists_are_there() -> None:
    page = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")
    table = page[page.index("\n## Metrics\n") :].split("\n\n- ")[0]
    listed = set(re.findall(r"`(\w+)\(", table))
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pipeline/share_metrics").rglob("*.py"))
    assert len(listed) > 10
    assert [name for name in sorted(listed) if f"def {name}(" not in code] == []
