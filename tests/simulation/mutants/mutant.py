"""Defines mutants, and the import hook that plants one by changing the source of the modules it names."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


class MutantError(Exception):
    """A mutant no longer matches the product, or is planted too late."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old` by `new` in `module`, where `old` must occur exactly once."""

    module: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """Return the changed source. Raises MutantError."""
        found = source.count(self.old)
        if found != 1:
            raise MutantError(
                f"{self.module} holds {self.old!r} {found} times; expected exactly once: "
                "adapt the mutant to the product"
            )
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug: its name, its mistake, the rules it breaks (a violation of any of them counts as finding it), and
    its edits.

    `tests` are the tests that pytest runs to find it (paths or node ids); without them the simulator hunts it.
    """

    name: str
    wrong: str
    rules: tuple[str, ...]
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules it changes."""
        return tuple(dict.fromkeys(edit.module for edit in self.edits))


class _Loader(SourceFileLoader):
    """Compiles the changed source, bypassing all bytecode caches."""

    edits: Sequence[Edit] = ()

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        for edit in self.edits:
            source = edit.apply(source)
        code: CodeType = self.source_to_code(source.encode(), self.path)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._edits: dict[str, list[Edit]] = defaultdict(list)
        for edit in mutant.edits:
            self._edits[edit.module].append(edit)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._edits:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Loader(fullname, spec.origin)
        loader.edits = self._edits[fullname]
        spec.loader = loader
        return spec


def plant(mutant: Mutant) -> None:
    """Make this process import the product with the bug. Raises MutantError if a module has already been imported."""
    early = [module for module in mutant.modules if module in sys.modules]
    if early:
        raise MutantError(f"{mutant.name}: {', '.join(early)} was imported before the bug was planted")
    sys.meta_path.insert(0, _Finder(mutant))
