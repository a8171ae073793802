"""A timer that stays armed while deadlines come and go, since hardly any of them are ever reached (P-13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

#: The longest time, in seconds, for which a timer is armed: the event loop's clock may stop while the machine is
#: suspended.
_FARTHEST_S: Final = 60.0


class ArmedTimer:
    """Calls `fire` at the earliest time it was armed for, or sooner: `fire` checks what is due and re-arms the timer.

    Times are on the owner's clock, in the owner's unit. `at`: the time the timer is armed for; infinite while it is not
    armed. If deadlines are many, compare each with `at` before calling `arm`, so that a later one costs nothing.
    """

    __slots__ = ("_fire", "_handle", "at")

    def __init__(self, fire: Callable[[], None]) -> None:
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self.at = inf

    def arm(self, at: float, delay_s: float) -> None:
        """Fire at `at`, `delay_s` seconds from now, unless it is already set to fire sooner. Needs a running event
        loop."""
        if at >= self.at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.at = at
        self._handle = asyncio.get_running_loop().call_later(min(max(0.0, delay_s), _FARTHEST_S), self._on_time)

    def cancel(self) -> None:
        """Do not fire until armed again."""
        self.at = inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self) -> None:
        self.at, self._handle = inf, None
        self._fire()
