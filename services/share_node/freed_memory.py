"""Gives memory that this process has freed back to the system (CM-95a).

The C library keeps freed memory for later, and gives back only the end of the heap. After a burst of requests a node
would keep the burst's memory for ever, though a container next to it may need it. It also spreads threads over up to
eight arenas per core, and memory that is free in one arena serves no thread of another.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger(__name__)

#: Memory is given back when this much was freed since the last time, or an eighth of the memory in use if that is more.
FREED_BYTES: Final = 32 * 1024 * 1024
_PART: Final = 8

#: Arenas of a process. The main thread allocates from the first, all threads of gRPC share the second.
ARENAS: Final = 2

#: `M_ARENA_MAX` of glibc's malloc.h.
_ARENA_MAX: Final = -8

_FIELDS: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Usage(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


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

    def limit_arenas(self) -> None:
        """Allocate from `ARENAS` arenas at most; it has an effect only before other threads allocate memory."""
        self._set_option(_ARENA_MAX, ARENAS)

    def trim(self) -> None:
        """Give all free pages back; it takes about 0.2 ms for each MiB."""
        self._trim(0)


class FreedMemory:
    """Decides when to give memory back; call `look` from time to time."""

    def __init__(self, usage: Callable[[], tuple[int, int]], trim: Callable[[], None]) -> None:
        self._usage = usage
        self._trim = trim
        _, self._least = usage()

    def look(self) -> bool:
        """Give memory back if enough was freed since the last time. Returns whether it did."""
        used, free = self._usage()
        self._least = min(self._least, free)
        if free - self._least < max(FREED_BYTES, used // _PART):
            return False
        began = time.perf_counter()
        self._trim()
        took_ms = round((time.perf_counter() - began) * 1000)
        log.debug("freed_memory_returned", freed_bytes=free - self._least, used_bytes=used, took_ms=took_ms)
        _, self._least = self._usage()
        return True


def of_this_process() -> FreedMemory | None:
    """Limit the arenas of this process, and return its FreedMemory; None when its C library cannot be queried."""
    try:
        library = CLibrary()
    except UnknownAllocatorError:
        return None
    library.limit_arenas()
    return FreedMemory(library.usage, library.trim)
