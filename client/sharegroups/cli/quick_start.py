"""Avoids garbage collection while a command imports its modules and when it ends: collection took a quarter of the time
of `--help`."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Turn garbage collection off inside the block, since modules, classes and functions live until the process ends
    anyway."""
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()


def end_without_search() -> None:
    """Skip the garbage collection at the end of this process, since its memory is freed anyway."""
    atexit.register(gc.freeze)
