"""Which tests run beside which, where pytest has two processes: a plugin of pytest, used by `make test`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
#: Tests that wait, for leases and locks to end, more than they compute.
WAITING: Final = ("attack", "chaos", "integration/scenarios", "upgrade")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two rows: what waits, and what computes. So no two tests fight for what either needs, and there is one Spark."""
    for item in items:
        if item.path.is_relative_to(HERE):
            folder = item.path.relative_to(HERE).as_posix()
            waits = any(folder.startswith(f"{name}/") for name in WAITING)
            item.add_marker(pytest.mark.xdist_group("waiting" if waits else "computing"))
