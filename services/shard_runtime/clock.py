"""The only place that reads time: wall milliseconds for records, and a clock for deadlines that no suspension stops.

CLOCK_BOOTTIME goes on while a virtual machine is suspended; CLOCK_MONOTONIC does not, and a lease measured by it would
outlive its owner's right (CM-3).
"""

from __future__ import annotations

import time
from typing import Final, Protocol

_DEADLINE_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Time as hosts see it; tests and the simulator supply their own."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump. For records and people, never for deadlines."""
        ...

    def now_ms(self) -> int:
        """Milliseconds of a clock that never jumps; for leases, locks, timers and every `now_ms` given to a core."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since boot, suspension included."""
        return time.clock_gettime_ns(_DEADLINE_CLOCK) // 1_000_000
