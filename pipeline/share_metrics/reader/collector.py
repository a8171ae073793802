"""Python's garbage collector waits while a page is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Inside, no cycles are looked for. For what makes thousands of small objects at once, and no cycle among them.

    The collector starts for every 700 new lists and tuples, and a page has 15,000: to look through them again and again
    took half of a reader's CPU (PM-79). It may run all the same where another thread leaves such a place.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
