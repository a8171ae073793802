"""An event loop whose time jumps to the next timer, so that waiting costs nothing and is exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: adds the time that asyncio would have slept to the loop's time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("the loop would wait for ever: no timer is set and nothing is ready")
        ready = super().select(0)
        if not ready:
            self.skipped_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that starts at 0 s and whose time advances only when nothing is left to do."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.skipped_s


def now_s() -> float:
    """Return the running loop's time in seconds."""
    return asyncio.get_running_loop().time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a virtual loop; pending tasks are cancelled afterwards."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine function: the test runs it to its end on a virtual loop."""

    @wraps(test)
    def played(*args: P.args, **fixtures: P.kwargs) -> None:
        run(test(*args, **fixtures))

    return played


async def turns_of(work: Awaitable[Any]) -> int:
    """Count how often other tasks ran while `work` was done."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns
