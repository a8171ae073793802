"""Reads the project's modules, and what they and the tests import, from their syntax trees."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE_ROOTS = ("protos", "client", "services", "pipeline")


def modules() -> Iterator[tuple[str, Path]]:
    """Yield (dotted name, path) of every hand-written module."""
    for source in SOURCE_ROOTS:
        for path in sorted((ROOT / source).rglob("*.py")):
            if "_pb2" not in path.name and "examples" not in path.parts:
                name = ".".join(path.relative_to(ROOT / source).with_suffix("").parts)
                yield name.removesuffix(".__init__"), path


def imports(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import; names imported from a module are spelled out below it.

    Imports inside functions and under TYPE_CHECKING are included.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


MODULES = dict(modules())
#: Processes that a helper starts, which its imports do not show.
STARTED = {ROOT / "tests" / "support" / "node.py": MODULES["share_node.__main__"]}


def within(path: Path) -> Path:
    """Return a module's path below its source root."""
    return path.relative_to(next(ROOT / source for source in SOURCE_ROOTS if path.is_relative_to(ROOT / source)))


@cache
def arrows(path: Path) -> frozenset[Path]:
    """Return the test and source files that a file imports, including a package's own `__init__`."""
    if path.is_relative_to(ROOT / "tests"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    else:
        module = ".".join(within(path).with_suffix("").parts).removesuffix(".__init__")
    return frozenset(file for _, name in imports(module, path) for file in files_of(name)) | _started(path)


def _started(path: Path) -> set[Path]:
    return {STARTED[path]} if path in STARTED else set()


def files_of(name: str) -> Iterator[Path]:
    """Yield the files that a dotted name may come from: the module itself, or the module that defines the name."""
    for module in (name, name.rpartition(".")[0]):
        if module in MODULES:
            yield MODULES[module]
        elif module.startswith("tests."):
            path = ROOT / Path(*module.split("."))
            yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists())


def reached(start: Path) -> set[Path]:
    """Return all files that a test imports, directly or through others."""
    seen, todo = {start}, [start]
    while todo:
        new = arrows(todo.pop()) - seen
        seen |= new
        todo += new
    return seen
