"""There are no import cycles, not even for types alone, so of any two modules one can be read first.

Imports under TYPE_CHECKING and inside functions count. The imports of a package's `__init__` count for modules that
import a name from it, and not for those that only pass through it to a module inside.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.packaging.source_imports import imports, modules

MODULES = dict(modules())


def imported(names: Iterable[str], known: Mapping[str, Path]) -> set[str]:
    """Return the known modules among imported names, and those that define imported names."""
    return {module for name in names for module in [name if name in known else name.rpartition(".")[0]]} & known.keys()


def circle(known: Mapping[str, Path]) -> list[str]:
    """Return the modules of one cycle, each imported by the next; empty if there is none."""
    arrows = {
        module: imported((name for _, name in imports(module, path)), known) - {module}
        for module, path in known.items()
    }
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = circle(MODULES)
    assert found == [], f"break it with a protocol or a value at the right side: {' <- '.join(found)}"


LATE = "def f():\n    from room.high import High"
TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from room.high import High"


@pytest.mark.parametrize("low", ["import room.high", "from room import high", "from .high import High", LATE, TYPES])
def test_a_circle_is_found_however_it_is_written(tmp_path: Path, low: str) -> None:
    assert set(circle(tree(tmp_path, low=low, high="from room.low import Low"))) == {"room.low", "room.high"}


def test_a_circle_through_a_package_is_found(tmp_path: Path) -> None:
    room = {
        "__init__": "from room.high import High",
        "high": "from room.low import Low",
        "low": "from room import High",
    }
    assert set(circle(tree(tmp_path, **room))) == {"room", "room.low", "room.high"}


def test_a_package_that_shows_its_own_modules_is_no_circle(tmp_path: Path) -> None:
    assert circle(tree(tmp_path, __init__="from room.high import High", high="from room.low import Low", low="")) == []


def tree(folder: Path, **sources: str) -> dict[str, Path]:
    """Write a package `room` with these modules; return their paths by name."""
    known = {}
    for name, source in {"__init__": "", **sources}.items():
        path = folder / f"{name}.py"
        path.write_text(source)
        known["room" if name == "__init__" else f"room.{name}"] = path
    return known
