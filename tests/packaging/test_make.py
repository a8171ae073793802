"""What the words of the Makefile bring along, and what people are told to type."""

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
    """In a fresh clone: `make image` brought Spark, 450 MB, for nothing."""
    said = subprocess.run(
        ["make", "--dry-run", word, f"VENV={tmp_path / 'venv'}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "image.sh" in said
    assert "--editable" not in said
    assert "build-system" in said


def _shown() -> list[Path]:
    """What people read or run, but for tests and tools."""
    named = [*tracked(".py"), *tracked(".md"), *tracked(".sh"), *tracked(".yaml")]
    roots = ("client/", "services/", "pipeline/", "docs/", "deploy/", "README.md")
    return [path for path in named if path.relative_to(ROOT).as_posix().startswith(roots)]


def test_nobody_is_told_to_install_from_an_index_that_has_no_such_package() -> None:
    assert not [path for path in _shown() if re.search(r"install '?sharegroups\b", path.read_text())]


def test_commands_in_examples_have_the_options_they_show() -> None:
    """`produce` takes its topic by itself; `perf produce` does not."""
    assert not [path for path in _shown() if re.search(r"(?<!perf )produce --topic", path.read_text())]
