"""The packages that the Makefile's targets install, and the commands that users are shown."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.test_tidy import ROOT, tracked


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make: it is asked what it would do")
@pytest.mark.parametrize("word", ["image", "image-pipeline"])
def test_an_image_installs_no_more_than_makes_the_wheel(tmp_path: Path, word: str) -> None:
    """In a fresh clone, `make image` once installed Spark (450 MB) needlessly."""
    said = subprocess.run(
        ["make", "--dry-run", word, f"VENV={tmp_path / 'venv'}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "image.sh" in said
    assert "--editable" not in said
    assert "build-system" in said


def _shown() -> list[Path]:
    """Return the files that users read or run, without tests and tools."""
    named = [*tracked(".py"), *tracked(".md"), *tracked(".sh"), *tracked(".yaml")]
    roots = ("client/", "services/", "pipeline/", "docs/", "deploy/", "README.md")
    return [path for path in named if path.relative_to(ROOT).as_posix().startswith(roots)]


def test_no_page_shows_an_install_from_an_index_that_has_no_such_package() -> None:
    assert not [path for path in _shown() if re.search(r"install '?sharegroups\b", path.read_text())]


def test_commands_in_examples_have_the_options_they_show() -> None:
    """`produce` takes its topic as an argument; `perf produce` takes an option."""
    assert not [path for path in _shown() if re.search(r"(?<!perf )produce --topic", path.read_text())]
