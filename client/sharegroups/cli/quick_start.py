"""A command imports its modules and ends without searches for garbage: together they took a quarter of `--help`."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Inside, Python does not search for garbage: modules, classes and functions stay to the end."""
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()


def end_without_search() -> None:
    """When this process ends, let Python not search everything for garbage first: memory goes with the process."""
    atexit.register(gc.freeze)
