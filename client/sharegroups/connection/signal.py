"""A flag that one task waits for, with a time-out.

It works like an asyncio.Event inside asyncio.timeout, but for one waiter and at a fraction of the cost. Since hardly
any wait times out, the same timer stays armed across waits.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from kip932.armed_timer import ArmedTimer

#: A timer may fire early by up to this much, in seconds.
_TICK_S: Final = 0.001


class Signal:
    """The flag. Set it in the event loop; it stays set until `clear`. One task may wait; a second one replaces it."""

    __slots__ = ("_is_set", "_timer", "_until", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._until = inf
        self._timer = ArmedTimer(self._check)

    def set(self) -> None:
        """Set the flag and wake the waiting task."""
        self._is_set = True
        if self._waiter is not None:
            self._wake(self._waiter)

    def clear(self) -> None:
        """Clear the flag."""
        self._is_set = False

    async def wait(self, timeout_s: float | None) -> None:
        """Return when the flag is set, or after `timeout_s`; None waits without limit."""
        if self._is_set:
            return
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        self._until = inf
        if timeout_s is not None:
            self._until = loop.time() + max(0.0, timeout_s)
            if self._until < self._timer.at:
                self._timer.arm(self._until, timeout_s)
        try:
            await waiter
        finally:
            if self._waiter is waiter:
                self._waiter = None

    def _check(self) -> None:
        """Handle the timer: end the current wait if its time is over, else arm the timer for its end."""
        if self._waiter is None or self._until == inf:
            return
        left_s = self._until - asyncio.get_running_loop().time()
        if left_s <= _TICK_S:
            self._wake(self._waiter)
        else:
            self._timer.arm(self._until, left_s)

    @staticmethod
    def _wake(waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)
