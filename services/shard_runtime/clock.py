"""The only module that reads time: a wall clock for records, and a deadline clock that also runs in suspension.

CLOCK_BOOTTIME keeps running while a virtual machine is suspended. CLOCK_MONOTONIC stops, so a lease measured by it
would seem valid after it has ended (CM-3). `StoreTime` is the wall clock of a process in a cluster. It follows the
store's clock, so that one host's wrong clock neither deletes records nor ends delays (CM-170).
"""

from __future__ import annotations

import time
from typing import Final, Protocol

#: How long a comparison of the host's clock with the store's stays valid.
COMPARED_MAX_MS: Final = 60_000
#: How long the clocks must have run without a step before records are deleted by age: time to notice a wrong clock.
STEADY_MS: Final = 3_600_000

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


class StoreTime:
    """The wall clock that all processes of a cluster share: the store's time, advanced by this host's deadline clock.

    Until the first comparison it is the host's own wall clock. `bound_ms`: how far the host's and the store's clock may
    differ, and how far either may jump between two comparisons, before it is taken to be set wrong (CM-170).
    """

    def __init__(self, host: Clock, bound_ms: int) -> None:
        self._host = host
        #: The host's deadline clock, without a wrapper: one request reads it some twenty times.
        self.now_ms = host.now_ms
        self._bound_ms = bound_ms
        self._ahead_ms = host.wall_ms() - host.now_ms()
        self._compared_ms: int | None = None
        self._last_step_ms: int | None = None
        self.store_ahead_ms = 0
        """By how much the store's clock was ahead of the host's at the last comparison."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the store's clock; by the host's if `compare` found that the store's was set
        wrong."""
        return self._host.now_ms() + self._ahead_ms

    def compare(self, store_ms: int, asked_ms: int) -> None:
        """Note the store's time, which was requested at `asked_ms` (deadline clock) and has just arrived.

        The store's time is adopted, unless the store's clock has jumped and the host's has not: then the host's is. A
        reply is known to within half of the time that it took: if the time so far agrees with that, it is kept, so that
        a slow reply does not move it. One that took longer than the bound is ignored.
        """
        host_ms, now_ms = self._host.wall_ms(), self._host.now_ms()
        if now_ms - asked_ms > self._bound_ms:
            return
        by_store, by_host, until_now = store_ms - (asked_ms + now_ms) // 2, host_ms - now_ms, self._ahead_ms
        if abs(by_store - until_now) <= (now_ms - asked_ms + 1) // 2:
            by_store = until_now
        first = self._compared_ms is None
        store_was_set = not first and not self._near(by_store, until_now) and self._near(by_host, until_now)
        self._ahead_ms = by_host if store_was_set else by_store
        if not first and not self._near(self._ahead_ms, until_now):
            self._last_step_ms = now_ms
        self.store_ahead_ms = by_store - by_host
        self._compared_ms = now_ms

    def doubt(self) -> str:
        """Return why nothing may be deleted by age now; "" when deletion is allowed."""
        now_ms, bound_ms = self._host.now_ms(), self._bound_ms
        if self._compared_ms is None or now_ms - self._compared_ms > COMPARED_MAX_MS:
            return "this host's clock was not compared with the store's in the last minute"
        if abs(self.store_ahead_ms) > bound_ms:
            order = "behind" if self.store_ahead_ms > 0 else "ahead of"
            return (
                f"this host's clock is {abs(self.store_ahead_ms) / 1000:.0f} s {order} the store's; expected at most "
                f"{bound_ms / 1000:.0f} s: set the wrong one right"
            )
        if self._last_step_ms is not None and now_ms - self._last_step_ms < STEADY_MS:
            return f"the clocks of this host and of the store were set within the last {STEADY_MS // 60_000} minutes"
        return ""

    def judged(self, store_ms: int) -> tuple[int, bool]:
        """Return the time to judge ages by, given the store's time just read, and whether it is reliable enough to end
        something early: it is not while a clock may be wrong (CM-156)."""
        wall_ms = self.wall_ms()
        near = self._near(store_ms, wall_ms)
        return (store_ms if near else wall_ms), near and not self.doubt()

    def _near(self, one: int, other: int) -> bool:
        return abs(one - other) <= self._bound_ms
