"""What the documents point to is there."""

import re

import pytest

from tests.packaging.test_tidy import ROOT, tracked

DOCUMENTS = [path.relative_to(ROOT).as_posix() for path in tracked(".md")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_link_to_a_file_leads_to_one(document: str) -> None:
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []
