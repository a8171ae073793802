"""Checks this process's memory every 10 s: searches for reference cycles if it has grown, and gives freed memory
back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from share_node.freed_memory import of_this_process
from share_node.ring_search import RingSearches

LOOK_S: Final = 10.0


@contextlib.contextmanager
def looks_at_memory(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Carry out CM-95 and CM-95a while the context is open on `loop`."""
    searches, freed = RingSearches(), of_this_process()
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        timer = loop.call_later(LOOK_S, look)
        searches.look()
        if freed is not None:
            freed.look()

    searches.start()
    loop.call_soon(look)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        searches.stop()
