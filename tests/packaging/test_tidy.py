"""The house rules that a machine can check: sizes, module docstrings, no paths of a single machine."""

import ast
import contextlib
import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILE_LINES_MAX = 700
BODY_LINES_MAX = 60
# File, or file::function → why it may be longer. An entry that is no longer needed fails.
LONGER: dict[str, str] = {}
# Absolute paths that exist on one machine only; the names are split so that this file does not match itself.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:" + "|".join(["work", "farm", "root", "Users", "home/[a-z]"]) + r")/")
BINARY = frozenset({".png", ".ico", ".json", ".svg", ".gz", ".whl"})


def tracked(suffix: str = "") -> list[Path]:
    """Return the files under version control; all files in an unpacked sdist, which has none, or without git."""
    listed = ""
    with contextlib.suppress(FileNotFoundError):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [name for name in listed.split("\0") if name]
    found = [ROOT / name for name in names] or [path for path in ROOT.rglob("*") if not _made(path)]
    return sorted(path for path in found if path.is_file() and path.name.endswith(suffix) and "_pb2" not in path.name)


def _made(path: Path) -> bool:
    """Return whether a build or a tool made it, which git would ignore."""
    parts = path.relative_to(ROOT).parts
    return (
        parts[0] in {".git", "build", "dist"}
        or any(part.startswith(".") and part.endswith("cache") for part in parts)
        or ".venv" in parts
        or "__pycache__" in parts
    )


PYTHON = tracked(".py")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's body without its docstring."""
    first = function.body[1] if ast.get_docstring(function) is not None and len(function.body) > 1 else function.body[0]
    return (function.end_lineno or first.lineno) - first.lineno + 1


@functools.cache
def long_bodies(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [f"{name_of(path)}::{node.name}" for node in functions if body_lines(node) > BODY_LINES_MAX]


def test_no_file_is_longer_than_a_reader_keeps_in_mind() -> None:
    found = {name_of(path): lines_of(path) for path in PYTHON if lines_of(path) > FILE_LINES_MAX}
    assert {name: count for name, count in found.items() if name not in LONGER} == {}, "look for the second noun in it"


def test_no_body_is_longer_than_a_screen() -> None:
    found = [name for path in PYTHON for name in long_bodies(path)]
    assert [name for name in found if name not in LONGER] == []


def test_exceptions_are_still_needed() -> None:
    needed = {name_of(path) for path in PYTHON if lines_of(path) > FILE_LINES_MAX}
    needed |= {name for path in PYTHON for name in long_bodies(path)}
    assert set(LONGER) <= needed


def test_every_module_opens_with_what_it_owns() -> None:
    silent = [
        name_of(path)
        for path in PYTHON
        if (text := path.read_text(encoding="utf-8")).strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{name_of(path)}:{number}"
        for path in tracked()
        if path.suffix not in BINARY
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if MACHINE_PATHS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in PYTHON if "tests" in path.parts}), ids=name_of)
def test_every_folder_of_tests_is_a_package(folder: Path) -> None:
    assert (folder / "__init__.py").exists(), "else a test package shadows a service of the same name"
