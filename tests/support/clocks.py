"""The clocks that tests give to what they test: one of the virtual loop's time, one that the test moves."""

from __future__ import annotations

import asyncio
from typing import Final

#: The wall clock when the other one shows 0.
WALL_MS: Final = 1_780_000_000_000
START_MS: Final = 1_000_000


class LoopClock:
    """The running loop's time, on `virtual_time.VirtualLoop` above all. `ahead_ms` makes a process that was paused."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1_000) + self.ahead_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms()


class HandClock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return WALL_MS + self.ms
