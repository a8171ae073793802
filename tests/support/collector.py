"""Keeps what a process of pytest holds to its end out of the searches of Python's garbage collector.

After its collection such a process holds a million objects. Each search through all of them takes 0.2 s, and every
simulated history makes two: longer than a short history itself.
"""

from __future__ import annotations

import gc
from typing import Final

#: A search through fewer takes some milliseconds.
OBJECTS_MANY: Final = 100_000


def many_objects() -> bool:
    """Whether a search would look at many objects now."""
    return len(gc.get_objects()) > OBJECTS_MANY


def exclude_old() -> None:
    """Exclude what is there now from searches, if it is much. Between tests only: of what a test holds, rings would
    stay."""
    if many_objects():
        gc.collect()
        gc.freeze()
