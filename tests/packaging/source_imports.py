"""The project's modules and what each imports, read from their syntax trees."""

import ast
from collections.abc import Iterator
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
