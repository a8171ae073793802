"""A process whose clocks are wrong: `python …/false_clock.py FILE PYTHON -m MODULE WORDS…` runs the module that way.

Every clock in the module `time` is shifted, including deadline clocks and the event loop's timers, by the error that
FILE contains when the clock is read; another process writes FILE (`ClockFile`). The wall clock may jump; all clocks may
run fast or slow, and deadline clocks stay continuous meanwhile, as a machine's do. Not affected are gRPC's own C code,
`datetime.now`, which logging uses, and all other processes. This module imports only the standard library, and disables
uvloop, whose timers read the clock in C.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

#: The first and last numbers are written before and after the rest: if they differ, the reader read during a write.
_LAYOUT: Final = struct.Struct("=qqqqqq")
_BILLION: Final = 1_000_000_000
_TRUE_MONOTONIC_NS: Final = time.monotonic_ns


class Error(NamedTuple):
    """The error of a process's clocks: `shift_ns` at the true monotonic time `since_ns`, since when they run `rate_ppm`
    fast (slow if negative); the wall clock is off by another `wall_ns`."""

    since_ns: int = 0
    shift_ns: int = 0
    rate_ppm: int = 0
    wall_ns: int = 0

    def shift(self, now_ns: int) -> int:
        """Return the error that every clock has at a true monotonic time."""
        return self.shift_ns + (now_ns - self.since_ns) * self.rate_ppm // 1_000_000


class ClockFile:
    """Sets the clocks of one process from another process, whose clocks are right."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._error = Error()
        self._writes = 0
        path.write_bytes(_LAYOUT.pack(0, *self._error, 0))

    def set(self, *, wall_ms: int | None = None, rate_ppm: int | None = None, shift_ms: int = 0) -> None:
        """Set the wall clock's offset and the rate of all clocks from now on; None leaves either as it is. `shift_ms`
        moves all of them, as on a machine that was started at another time; not to be used for a running process."""
        now_ns, old = _TRUE_MONOTONIC_NS(), self._error
        self._error = Error(
            now_ns,
            old.shift(now_ns) + shift_ms * 1_000_000,
            old.rate_ppm if rate_ppm is None else rate_ppm,
            old.wall_ns if wall_ms is None else wall_ms * 1_000_000,
        )
        self._writes += 1
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), _LAYOUT.size) as shared:
            shared[0:8] = struct.pack("=q", self._writes)
            shared[8:40] = struct.pack("=qqqq", *self._error)
            shared[40:48] = struct.pack("=q", self._writes)


def follow(path: Path) -> Callable[[], Error]:
    """Return a function that reads the clock file's current content."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), _LAYOUT.size, access=mmap.ACCESS_READ)

    def read() -> Error:
        while True:
            first, *error, last = _LAYOUT.unpack_from(shared)
            if first == last:
                return Error(*error)

    return read


def shift_clocks(error: Callable[[], Error]) -> None:
    """Make every clock in the module `time` wrong in this whole process."""
    true_wall_ns, true_of_ns = time.time_ns, time.clock_gettime_ns

    def monotonic_ns() -> int:
        now_ns = _TRUE_MONOTONIC_NS()
        return now_ns + error().shift(now_ns)

    def wall_ns() -> int:
        now, wrong = _TRUE_MONOTONIC_NS(), error()
        return true_wall_ns() + wrong.shift(now) + wrong.wall_ns

    def of_ns(clock: int) -> int:
        now, wrong = _TRUE_MONOTONIC_NS(), error()
        true = true_of_ns(clock)
        if clock == time.CLOCK_REALTIME:
            return true + wrong.shift(now) + wrong.wall_ns
        return true + wrong.shift(now) if clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME) else true

    false: dict[str, Callable[..., Any]] = {
        "monotonic_ns": monotonic_ns,
        "monotonic": lambda: monotonic_ns() / _BILLION,
        "time_ns": wall_ns,
        "time": lambda: wall_ns() / _BILLION,
        "clock_gettime_ns": of_ns,
        "clock_gettime": lambda clock: of_ns(clock) / _BILLION,
    }
    for name, clock in false.items():
        setattr(time, name, clock)


def main(words: list[str]) -> None:
    """Shift the clocks and run the module."""
    file, _, dash_m, module, *rest = words
    assert dash_m == "-m", words
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # this is how an import is made to fail
    shift_clocks(follow(Path(file)))
    sys.argv = [module, *rest]
    sys.path[0] = ""  # as with -m, not the folder of this file
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
