"""Pauses Python's garbage collector while a page is decoded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector inside the block. Use it to create thousands of small objects without cycles.

    The collector runs after every 700 new lists and tuples, and a page has 15,000: these runs took half of a reader's
    CPU (PM-79). It may still run once another thread leaves such a block.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
