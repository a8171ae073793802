"""Clocks for the code under test: one shows the virtual loop's time, one moves only when the test moves it."""

from __future__ import annotations

import asyncio
from typing import Final

#: The wall-clock time when the other clock shows 0.
WALL_MS: Final = 1_780_000_000_000
START_MS: Final = 1_000_000


class LoopClock:
    """The running loop's time, usually `virtual_time.VirtualLoop`'s. Raising `ahead_ms` imitates a paused process."""

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
