"""Keeps Python's garbage collector from blocking the event loop: objects that survived a search are not searched again.

Python frees an object at once when nothing refers to it. Only objects that refer to each other (reference cycles) need
a search, and searching all objects takes 0.4 µs each: 0.4 s with 20,000 partitions, every half minute (CM-95). This
module decides when to search; it frees nothing itself.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from shard_runtime.rpc.budget import memory_bytes

log = structlog.get_logger(__name__)

#: All objects are searched again when the process's memory has doubled since the last time and grown by GROWN_BYTES; or
#: when it has taken half of the memory that was left, and at least SCARCE_BYTES.
GROWN_BYTES: Final = 128 * 1024 * 1024
SCARCE_BYTES: Final = 32 * 1024 * 1024
#: Searches of the middle generation before one of the oldest, which then has about 40,000 objects: some 15 ms.
MIDDLE_SEARCHES: Final = 5
_OLDEST: Final = 2


def resident_bytes() -> int:
    """Return the memory that this process uses now, in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class RingSearches:
    """Excludes objects that survived a search of the oldest generation from further searches, until memory has grown.

    From `start` to `stop` it changes the collector of the whole process, so use only one at a time.
    """

    def __init__(self, resident: Callable[[], int] = resident_bytes, limit_bytes: int | None = None) -> None:
        """`limit_bytes`: the memory that this process may use; None for the memory of the container or machine."""
        self._resident = resident
        self._limit = memory_bytes() if limit_bytes is None else limit_bytes
        self._least = 0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Exclude all present objects: modules and classes stay for the life of the process."""
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:_OLDEST], MIDDLE_SEARCHES)
        gc.callbacks.append(self._searched)
        gc.freeze()
        self._least = self._resident()

    def stop(self) -> None:
        """Restore Python's own settings."""
        gc.callbacks.remove(self._searched)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def look(self) -> bool:
        """Search all objects if memory has grown since the last such search, or since its minimum after that. Returns
        whether it searched."""
        resident = self._resident()
        self._least = min(self._least, resident)
        if resident - self._least < self._much():
            return False
        began = time.perf_counter()
        gc.unfreeze()
        found = gc.collect()
        self._least = self._resident()
        took_ms = round((time.perf_counter() - began) * 1000)
        log.debug("reference_cycles_collected", bytes_before=resident, bytes=self._least, found=found, took_ms=took_ms)
        return True

    def _much(self) -> int:
        """Return the growth that triggers a search: reference cycles then use at most as much memory as everything
        else, and never all that is left."""
        return min(max(self._least, GROWN_BYTES), max((self._limit - self._least) // 2, SCARCE_BYTES))

    def _searched(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            gc.freeze()
