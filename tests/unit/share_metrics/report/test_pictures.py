"""The pictures in the docs are those that this build draws."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools import pictures

DOCS = pictures.FOLDER.parent


@pytest.mark.rule("PM-37", "PM-92")
def test_the_docs_show_what_this_build_draws(capsys: pytest.CaptureFixture[str]) -> None:
    assert pictures.main(["--check"]) == 0, capsys.readouterr().err
    reported = (DOCS / "pipeline.md").read_text(encoding="utf-8")
    assert [name for name in pictures.pictures() if f"images/{name}" not in reported] == []


def test_a_picture_that_differs_is_named_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    assert pictures.main(["--write"]) == 0
    assert pictures.main(["--check"]) == 0
    (tmp_path / "page-lag.svg").write_text("older", encoding="utf-8")
    assert pictures.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("docs/images/page-lag.svg is not what this build draws")
    assert pictures.main(["--write"]) == pictures.main(["--check"]) == 0
    assert pictures.main([]) == 2


def test_a_drawing_stands_alone_and_has_its_marks() -> None:
    made = pictures.pictures()
    drawings = {name: ET.fromstring(text) for name, text in made.items() if name.endswith(".svg")}
    assert len(drawings) == 3
    svg = "{http://www.w3.org/2000/svg}"
    for root in drawings.values():
        assert root.tag == f"{svg}svg"
        assert root.find(f"{svg}style") is not None
    marks = [
        line.get("class")
        for line in drawings["page-lag.svg"].iter(f"{svg}line")
        if line.find(f"{svg}title") is not None
    ]
    assert marks == ["m0", "m2"]
