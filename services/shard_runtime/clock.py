"""The only module that reads time: a wall clock for records, and a deadline clock that goes on during suspension.

CLOCK_BOOTTIME goes on while a virtual machine is suspended. CLOCK_MONOTONIC stops, so a lease measured by it would seem
valid after it has ended (CM-3).
"""

from __future__ import annotations

import time
from typing import Final, Protocol

_DEADLINE_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Time as hosts see it; tests and the simulator pass their own."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump. For records and people, never for deadlines."""
        ...

    def now_ms(self) -> int:
        """Milliseconds of a clock that never jumps. For leases, locks, timers and every `now_ms` passed to a core."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since boot, suspension included."""
        return time.clock_gettime_ns(_DEADLINE_CLOCK) // 1_000_000
