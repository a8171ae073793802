"""The files that `--reload` watches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sharegroups.cli.worker import source_files


@pytest.mark.rule("CL-129")
def test_the_python_files_of_the_program_and_not_those_of_its_environment(tmp_path: Path) -> None:
    for name in ("a.py", "deep/b.py", "data.txt", ".venv/c.py", "site-packages/d.py", ".git/e.py", "__pycache__/f.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    before = source_files(tmp_path)
    assert set(before) == {str(tmp_path / "a.py"), str(tmp_path / "deep/b.py")}
    os.utime(tmp_path / "a.py", (1, 1))
    changed = source_files(tmp_path)
    assert [path for path in changed if changed[path] != before[path]] == [str(tmp_path / "a.py")]
