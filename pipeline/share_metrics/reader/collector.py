"""Pauses Python's garbage collector while a page is decoded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Inside, the garbage collector does not run. Use it where code creates thousands of small objects without cycles.

    The collector runs after every 700 new lists and tuples, and a page has 15,000: these runs took half of a reader's
    CPU (PM-79). It may run nevertheless when another thread leaves such a block.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
