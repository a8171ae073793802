"""Keeps Python's search for rings of garbage from holding the event loop: what survived one is not looked at again.

What nobody refers to is freed at once; only objects that refer to each other need a search, and a search through all of
them takes 0.4 µs each: 0.4 s with 20,000 partitions, every half minute (CM-95). Decides when to search; frees nothing
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from shard_runtime.rpc.budget import memory_bytes

log = structlog.get_logger(__name__)

#: How often is looked whether memory has grown; so rings that pile up are not searched for more often either.
LOOK_S: Final = 10.0
#: All objects are searched again when the process has doubled since the last time and grown by so many bytes, or has
#: taken half of what was left of the memory that it may have, and so many.
GROWN_BYTES: Final = 128 * 1024 * 1024
SCARCE_BYTES: Final = 32 * 1024 * 1024
#: Searches of the middle generation before one of the oldest, which then has 40,000 objects or so: some 15 ms.
MIDDLE_SEARCHES: Final = 5
_OLDEST: Final = 2


def resident_bytes() -> int:
    """Memory that this process has now."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class RingSearches:
    """Sets aside what survived a search of the oldest generation, until memory has grown.

    Between `start` and `stop` the whole process is concerned, so there is one of these at a time.
    """

    def __init__(self, resident: Callable[[], int] = resident_bytes, limit_bytes: int | None = None) -> None:
        """`limit_bytes`: the memory that this process may have, found out when not given."""
        self._resident = resident
        self._limit = memory_bytes() if limit_bytes is None else limit_bytes
        self._least = 0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Set aside what is there: modules and classes stay for the life of the process."""
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:_OLDEST], MIDDLE_SEARCHES)
        gc.callbacks.append(self._searched)
        gc.freeze()
        self._least = self._resident()

    def stop(self) -> None:
        """Leave all to Python again."""
        gc.callbacks.remove(self._searched)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def look(self) -> bool:
        """Search all objects if memory has grown since that was done, or since it was least after that."""
        resident = self._resident()
        self._least = min(self._least, resident)
        if resident - self._least < self._much():
            return False
        began = time.perf_counter()
        gc.unfreeze()
        found = gc.collect()
        self._least = self._resident()
        took_ms = round((time.perf_counter() - began) * 1000)
        log.debug("memory searched for rings", bytes_before=resident, bytes=self._least, found=found, took_ms=took_ms)
        return True

    def _much(self) -> int:
        """Growth that is worth a search: rings then take no more than all else does, and never all that is left."""
        return min(max(self._least, GROWN_BYTES), max((self._limit - self._least) // 2, SCARCE_BYTES))

    def _searched(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            gc.freeze()


@contextlib.contextmanager
def bounded_searches(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Search as CM-95 says for as long as `loop` runs within."""
    searches = RingSearches()
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        timer = loop.call_later(LOOK_S, look)
        searches.look()

    searches.start()
    loop.call_soon(look)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        searches.stop()
