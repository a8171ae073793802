"""Crash points: moments in a process's work that a fault can wait for, such as a write that is executed but not yet
answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum

from tests.simulation.clock import Life, SimLoop

Action = Callable[[], Awaitable[None]]


class Point(StrEnum):
    """A moment in a process's work."""

    BEFORE_WRITE = "before a write is executed"
    AFTER_WRITE = "after a write is executed, before its reply"
    BEFORE_ANSWER = "before an answer leaves"


@dataclass(slots=True)
class _Armed:
    left: int
    action: Action


class CrashPoints:
    """Actions that wait for the nth moment of some kind in a process."""

    def __init__(self, loop: SimLoop, context: Context, life_of: Callable[[str], Life | None]) -> None:
        self._loop = loop
        self._context = context
        self._life_of = life_of
        self._armed: dict[tuple[str, Point], _Armed] = {}

    def arm(self, name: str, point: Point, nth: int, action: Action) -> None:
        """Run `action` before the `nth` such moment of the process from now on, outside of that process.

        The process then continues with its next step, if it is still alive and running: an action that kills it
        prevents that step. One action per process and kind of moment.
        """
        self._armed[(name, point)] = _Armed(nth, action)

    def disarm(self, name: str | None = None) -> None:
        """Drop the actions that wait for a process, or all."""
        for key in [key for key in self._armed if name is None or key[0] == name]:
            del self._armed[key]

    def armed(self, name: str, point: Point) -> bool:
        """Return True if an action waits for such a moment."""
        return (name, point) in self._armed

    async def reached(self, name: str, point: Point) -> bool:
        """Run the action that waits for this moment, then wait until the process may continue; return True if it is
        still alive."""
        armed, life = self._armed.get((name, point)), self._life_of(name)
        if armed is None or life is None:
            return True
        armed.left -= 1
        if armed.left <= 0:
            del self._armed[(name, point)]
            await self._loop.create_task(_done(armed.action), context=self._context.copy())
        return await life.runs()


async def _done(action: Action) -> None:
    await action()
