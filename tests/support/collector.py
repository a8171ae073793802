"""Excludes the objects that a pytest process keeps until it exits from Python's garbage collections.

After test collection such a process holds a million objects. Each collection over all of them takes 0.2 s, and every
simulated history makes two, which take longer than a short history itself.
"""

from __future__ import annotations

import gc
from typing import Final

#: A search through fewer objects takes a few milliseconds.
OBJECTS_MANY: Final = 100_000


def many_objects() -> bool:
    """Return whether a search would visit many objects now."""
    return len(gc.get_objects()) > OBJECTS_MANY


def exclude_old() -> None:
    """Exclude the current objects from searches, if there are many. Call it between tests only: reference cycles among
    a test's objects would never be freed."""
    if many_objects():
        gc.collect()
        gc.freeze()
