"""One armed timer for the earliest deadline. When a deadline moves later the timer stays as it is (P-13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from shard_runtime.clock import Clock

#: The longest time, in ms, that a timer is armed for: the event loop's clock may stop while the machine is suspended.
_FARTHEST_MS: Final = 60_000


class DeadlineTimer:
    """Calls `fire` at the deadline it was armed for, or earlier; `fire` checks what is due and arms it again."""

    def __init__(self, clock: Clock, fire: Callable[[], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def arm(self, deadline_ms: int | None, at_least_ms: int = 0) -> None:
        """Fire at `deadline_ms` (None: never), at least `at_least_ms` from now; an earlier timer stays armed."""
        if deadline_ms is None:
            return
        now_ms = self._clock.now_ms()
        at_ms = min(max(deadline_ms, now_ms + at_least_ms), now_ms + _FARTHEST_MS)
        if self._handle is not None:
            if self._at_ms <= at_ms:
                return
            self._handle.cancel()
        self._at_ms = at_ms
        self._handle = asyncio.get_running_loop().call_later(max(0, at_ms - now_ms) / 1000, self._on_time)

    def cancel(self) -> None:
        """Do not fire until armed again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self) -> None:
        self._handle = None
        self._fire()
