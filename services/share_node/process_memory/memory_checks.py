"""Checks this process's memory every 10 s: gives freed memory back to the system (CM-95a), and searches for reference
cycles if it has grown (CM-95)."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from shard_runtime.rpc.budget import memory_bytes

log = structlog.get_logger(__name__)

#: How often the memory is checked, s.
CHECK_EVERY_S: Final = 10.0

#: Memory is given back when this much was freed since the last time, or an eighth of the memory in use if that is more.
FREED_BYTES: Final = 32 * 1024 * 1024
_FREED_PART: Final = 8
#: Arenas of a process. The main thread allocates from the first, all threads of gRPC share the second.
ARENAS_MAX: Final = 2
#: How much free memory at the end of the heap is kept until the next check, and from which size on an allocation gets
#: pages of its own.
KEPT_BYTES: Final = 64 * 1024 * 1024
OWN_PAGES_BYTES: Final = 32 * 1024 * 1024
#: Options of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MALLINFO_FIELDS: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip

#: All objects are searched again when the process's memory has doubled since the last time and grown by GROWN_BYTES; or
#: when it has taken half of the memory that was left, and at least SCARCE_BYTES.
GROWN_BYTES: Final = 128 * 1024 * 1024
SCARCE_BYTES: Final = 32 * 1024 * 1024
#: Searches of the middle generation before one of the oldest, which then has about 40,000 objects: about 15 ms.
MIDDLE_SEARCHES: Final = 5
_OLDEST: Final = 2


class _Usage(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO_FIELDS]


class UnknownAllocatorError(Exception):
    """This module does not support the C library's allocator."""


class CLibrary:
    """The allocator of the C library."""

    def __init__(self) -> None:
        """Raises UnknownAllocatorError when it cannot be queried or trimmed."""
        library = ctypes.CDLL(None)
        try:
            self._mallinfo = library.mallinfo2
            self._trim = library.malloc_trim
            self._set_option = library.mallopt
        except AttributeError as error:
            raise UnknownAllocatorError("this C library is not glibc 2.33 or newer") from error
        self._mallinfo.restype = _Usage

    def usage(self) -> tuple[int, int]:
        """Bytes in use, and bytes that are free: kept, or given back before."""
        found = self._mallinfo()
        return found.uordblks, found.fordblks

    def keep_memory_for_all(self) -> None:
        """Limit malloc to `ARENAS_MAX` arenas, and let it keep what is freed at the end of the heap. The first has an
        effect only if no other thread has allocated memory yet.

        By default the C library spreads threads over up to eight arenas per core, and memory that is free in one arena
        serves no thread of another. It also returns each large batch's pages to the system as soon as the batch is
        freed: the next batch then waits for new ones, which costs many times its copy.
        """
        self._set_option(_M_ARENA_MAX, ARENAS_MAX)
        self._set_option(_M_TRIM_THRESHOLD, KEPT_BYTES)
        self._set_option(_M_MMAP_THRESHOLD, OWN_PAGES_BYTES)

    def trim(self) -> None:
        """Give all free pages back; it takes about 0.2 ms for each MiB."""
        self._trim(0)


class FreedMemory:
    """Gives memory that this process has freed back to the system, once there is enough of it (CM-95a); call `check`
    from time to time.

    The C library keeps freed memory for later, and gives back only the end of the heap. After a burst of requests a
    node would keep the burst's memory for ever, though a container next to it may need it.
    """

    def __init__(self, usage: Callable[[], tuple[int, int]], trim: Callable[[], None]) -> None:
        self._usage = usage
        self._trim = trim
        _, self._least = usage()

    def check(self) -> bool:
        """Give memory back if enough was freed since the last time. Returns whether it did."""
        used, free = self._usage()
        self._least = min(self._least, free)
        if free - self._least < max(FREED_BYTES, used // _FREED_PART):
            return False
        began = time.perf_counter()
        self._trim()
        took_ms = round((time.perf_counter() - began) * 1000)
        log.debug("freed_memory_returned", freed_bytes=free - self._least, used_bytes=used, took_ms=took_ms)
        _, self._least = self._usage()
        return True


def freed_memory_of_this_process() -> FreedMemory | None:
    """Set how this process keeps freed memory, and return its FreedMemory; None if its C library cannot be queried."""
    try:
        library = CLibrary()
    except UnknownAllocatorError:
        return None
    library.keep_memory_for_all()
    return FreedMemory(library.usage, library.trim)


def resident_bytes() -> int:
    """Return the memory that this process uses now, in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class CycleSearches:
    """Keeps Python's garbage collector from blocking the event loop (CM-95): objects that survived a search of the
    oldest generation are not searched again until memory has grown.

    Python frees an object at once when nothing refers to it. Only objects that refer to each other (reference cycles)
    need a search, and searching all objects takes 0.4 µs each: 0.4 s with 20,000 partitions, every half minute.

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

    def check(self) -> bool:
        """Search all objects if memory has grown since the last such search, or since its minimum after that. Returns
        whether it searched."""
        resident = self._resident()
        self._least = min(self._least, resident)
        if resident - self._least < self._growth_limit():
            return False
        began = time.perf_counter()
        gc.unfreeze()
        found = gc.collect()
        self._least = self._resident()
        took_ms = round((time.perf_counter() - began) * 1000)
        log.debug("reference_cycles_collected", bytes_before=resident, bytes=self._least, found=found, took_ms=took_ms)
        return True

    def _growth_limit(self) -> int:
        """Return the growth that triggers a search: reference cycles then use at most as much memory as everything
        else, and never all that is left."""
        return min(max(self._least, GROWN_BYTES), max((self._limit - self._least) // 2, SCARCE_BYTES))

    def _searched(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            gc.freeze()


@contextlib.contextmanager
def memory_upkeep(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Check the memory every CHECK_EVERY_S while the context is open on `loop` (CM-95, CM-95a)."""
    searches, freed = CycleSearches(), freed_memory_of_this_process()
    timer: asyncio.TimerHandle | None = None

    def check() -> None:
        nonlocal timer
        timer = loop.call_later(CHECK_EVERY_S, check)
        searches.check()
        if freed is not None:
            freed.check()

    searches.start()
    loop.call_soon(check)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        searches.stop()
