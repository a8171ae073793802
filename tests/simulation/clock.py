"""The simulator's event loop: virtual time, and the process to which each callback belongs.

Time does not advance while anything is ready to run, and then jumps to the next timer. Every callback and every step of
a task has in its context the life of the process for which it runs; a life is the time from a process's start to its
end. Callbacks of a paused life wait until it is resumed; those of a dead one never run. Tasks and futures have serial
numbers as hashes, because asyncio keeps them in sets, which are iterated in hash order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias, TypeVarTuple

Ts = TypeVarTuple("Ts")

#: 2026-09-21, and not a round number, so that wall clocks and offsets are not mistaken for each other.
WALL_START_MS: Final = 1_790_000_000_123
#: The number of callbacks at one instant of virtual time after which a run counts as spinning.
_INSTANT_MAX: Final = 200_000
#: The number of ended tasks that are kept before they are looked through and dropped to free memory.
_PRUNE_AT: Final = 32

_serials = itertools.count(1)


def begin_serials() -> None:
    """Number tasks and futures from 1 again, at the start of every run."""
    global _serials  # noqa: PLW0603 - a task's hash has no other source
    _serials = itertools.count(1)


class Life:
    """One life of a process, from its start to its end: whether its callbacks may run, and its tasks."""

    def __init__(self, loop: SimLoop, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.paused = False
        #: How many times it was paused.
        self.pauses = 0
        self.dead = False
        #: Set when it dies.
        self.died = loop.create_future()
        #: True if it still runs but can no longer send anything: a client that is being ended.
        self.severed = False
        #: True if its callbacks may not run, for any reason; the loop checks this flag.
        self.halted = False
        self.parked: list[Due] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._loop = loop
        loop.lives.append(self)
        self._resumed = loop.create_future()
        self._prune_at = _PRUNE_AT

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}"

    def made(self, task: asyncio.Task[Any]) -> None:
        """Keep a task while it runs, and afterwards if it ended with an exception that was never retrieved."""
        self.tasks.append(task)
        if len(self.tasks) > self._prune_at:
            self.tasks = [kept for kept in self.tasks if not kept.done() or unasked(kept)]
            self._prune_at = 2 * len(self.tasks) + _PRUNE_AT

    def park(self, due: Due) -> None:
        """Keep a due callback for `resume`; drop it if the life is dead."""
        if not self.dead:
            self.parked.append(due)

    def pause(self) -> None:
        """Run none of its callbacks until `resume`."""
        self.paused = self.halted = True
        self.pauses += 1
        self._resumed = self._loop.create_future()

    def resume(self) -> None:
        """Run the parked callbacks in the order in which they were due, and continue."""
        self.paused = False
        self.halted = self.dead
        parked, self.parked = self.parked, []
        if not self.dead:
            self._loop.unpark(parked)
        self._release()

    def die(self) -> None:
        """Never run any of its callbacks again. Its tasks stay as they are: nothing is cancelled or cleaned up."""
        self.dead = self.halted = True
        self.parked = []
        if not self.died.done():
            self.died.set_result(None)
        self._release()

    async def runs(self) -> bool:
        """Wait until it is not paused; return True if it is then alive. Used by code that acts on its behalf but does
        not belong to it."""
        while self.paused and not self.dead:
            await asyncio.shield(self._resumed)
        return not self.dead

    def _release(self) -> None:
        if not self._resumed.done():
            self._resumed.set_result(None)


def unasked(task: asyncio.Task[Any]) -> bool:
    """Return True if a task ended with an exception that was never retrieved."""
    return bool(getattr(task, "_log_traceback", False))


#: The life for which the current code runs; None: the simulated world itself, which is never paused.
LIFE: ContextVar[Life | None] = ContextVar("life", default=None)


@contextmanager
def living(life: Life | None) -> Iterator[None]:
    """Make everything that is started inside the block belong to `life`."""
    token = LIFE.set(life)
    try:
        yield
    finally:
        LIFE.reset(token)


def context_of(life: Life | None) -> Context:
    """Return a new context for a task or callback of `life`."""
    context = copy_context()
    context.run(LIFE.set, life)
    return context


class SimTask(asyncio.Task[Any]):
    """A task with a hash that is the same in every run."""

    _serial: int

    def __hash__(self) -> int:
        try:
            return self._serial
        except AttributeError:
            self._serial = next(_serials)
            return self._serial


class SimFuture(asyncio.Future[Any]):
    """A future with a hash that is the same in every run."""

    _serial: int

    def __hash__(self) -> int:
        try:
            return self._serial
        except AttributeError:
            self._serial = next(_serials)
            return self._serial


class SimHandle(asyncio.Handle):
    """A callback that waits for its turn."""

    __slots__ = ("life",)

    def __init__(self, callback: Callable[..., object], args: Any, context: Context | None) -> None:
        self._callback = callback
        self._args = args
        self._context = context if context is not None else copy_context()
        self._cancelled = False
        self.life = self._context.get(LIFE)

    def __repr__(self) -> str:
        return f"<callback of {self.life}: {self._callback}>"

    def cancel(self) -> None:
        """Do not run it."""
        self._cancelled = True


class SimTimer(asyncio.TimerHandle):
    """A callback that waits for its time."""

    __slots__ = ("life", "serial")

    def __init__(self, when: float, callback: Callable[..., object], args: Any, context: Context, serial: int) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self.life = context.get(LIFE)
        self.serial = serial

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return self.serial

    def __repr__(self) -> str:
        return f"<timer of {self.life} at {self._when} s: {self._callback}>"

    def cancel(self) -> None:
        """Do not run it."""
        self._cancelled = True


class _NotKept(SimHandle):
    """The handle that is returned for a callback without one."""

    __slots__ = ()

    def __init__(self) -> None:
        """Do nothing: there is no callback."""

    def cancel(self) -> None:
        raise RuntimeError("a callback that was given a context cannot be cancelled here")


_NOT_KEPT: Final = _NotKept()
#: A callback that cannot be cancelled, with its arguments, context and life.
_Callback: TypeAlias = tuple[Callable[..., object], tuple[Any, ...], Context, Life | None]
#: An entry that waits in the loop or is parked.
Due: TypeAlias = SimHandle | SimTimer | _Callback


class SimLoop(asyncio.BaseEventLoop):
    """The event loop. Its time starts at 0 s and advances only when nothing is ready. It has no files, signals or
    threads."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        #: Virtual milliseconds since the start; a timer for millisecond n does not run at n - 1.
        self.now_ms = 0
        self._timers: list[tuple[float, int, SimTimer | _Callback]] = []
        #: Every life of the run; the first is that of the world, for everything that belongs to no process.
        self.lives: list[Life] = []
        self._world = Life(self, "world", 0)

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self._now_s

    # ---- methods that asyncio calls

    #: Called for every task and future; the fastest way to return False.
    get_debug = staticmethod(bool)

    def create_future(self) -> SimFuture:
        """Create a future."""
        return SimFuture(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> SimTask:
        """Create a task that belongs to the life of its context."""
        task = SimTask(coro, loop=self, name=name, context=context)
        life = LIFE.get() if context is None else context.get(LIFE)
        (life or self._world).made(task)
        return task

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> SimHandle:
        """Run a callback in its turn. If a context is given, the callback cannot be cancelled: only tasks and futures
        pass one, and they keep no handle, so none is created. These are most of the callbacks."""
        if context is not None:
            self._ready.append((callback, args, context, context.get(LIFE)))  # type: ignore[attr-defined]
            return _NOT_KEPT
        handle = SimHandle(callback, args, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # BaseEventLoop's own queue
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        """Do the same as `call_soon`, since there is only one thread."""
        self._check_closed()  # type: ignore[attr-defined]
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimTimer:
        """Run a callback `delay` seconds from now."""
        return self._timer(self._now_s + delay, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimTimer:
        """Run a callback at a time."""
        return self._timer(when, callback, args, context)

    def _timer(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> SimTimer:
        serial = next(_serials)
        timer = SimTimer(when, callback, args, copy_context() if context is None else context, serial)
        if when > self._now_s:
            heappush(self._timers, (when, serial, timer))
        else:
            self._ready.append(timer)  # type: ignore[attr-defined]
        return timer

    def carry(self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        """Do the same as `call_at`, for messages in transit, which are numerous and cannot be cancelled."""
        due = (callback, args, context, context.get(LIFE))
        if when > self._now_s:
            heappush(self._timers, (when, next(_serials), due))
        else:
            next(_serials)
            self._ready.append(due)  # type: ignore[attr-defined]

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no files."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread to wake this one."""

    def _run_once(self) -> None:
        """Run everything, instant after instant, until `stop` is called."""
        ready = self._ready  # type: ignore[attr-defined]
        take, left = ready.popleft, _INSTANT_MAX
        while True:
            while ready:
                due = take()
                if type(due) is tuple:
                    callback, args, context, life = due
                elif due._cancelled:
                    continue
                else:
                    callback, args, context, life = due._callback, due._args, due._context, due.life
                if life is not None and life.halted:
                    life.park(due)
                    continue
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"callback of {life} failed", "exception": error})
                if self._stopping:  # type: ignore[attr-defined]
                    return
                left -= 1
                if left < 0:
                    raise RuntimeError(f"time does not advance at {self._now_s} s: {_INSTANT_MAX} callbacks, now {due}")
            self._jump()
            left = _INSTANT_MAX

    def _jump(self) -> None:
        """Advance to the next timer."""
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers:
            now_s, _, due = heappop(timers)
            if type(due) is tuple or not due._cancelled:  # type: ignore[union-attr]
                break
        else:
            raise RuntimeError("the loop would wait for ever: no timer is set and nothing is ready")
        ready.append(due)
        self._now_s = now_s
        self.now_ms = int(now_s * 1000 + 1e-6)
        while timers and timers[0][0] == now_s:
            ready.append(heappop(timers)[2])

    # ---- for lives

    def unpark(self, parked: list[Due]) -> None:
        """Let parked callbacks run, before any later callback of their life."""
        self._ready.extend(parked)  # type: ignore[attr-defined]

    def pending(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended."""
        return [task for life in self.lives for task in life.tasks if not task.done()]

    def drop_all(self) -> None:
        """Drop every callback, since the run is over."""
        self._ready.clear()  # type: ignore[attr-defined]
        self._timers.clear()


class ProcessClock:
    """The `shard_runtime.clock.Clock` of one process: its deadline clock starts with its machine; its wall clock may
    jump."""

    def __init__(self, loop: SimLoop, boot_ms: int = 0, wall_offset_ms: int = 0) -> None:
        self.wall_offset_ms = wall_offset_ms
        self._loop = loop
        self._boot_ms = boot_ms

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 by this process's wall clock."""
        return WALL_START_MS + self._loop.now_ms + self.wall_offset_ms

    def now_ms(self) -> int:
        """Return milliseconds since this process's machine was started."""
        return self._loop.now_ms + self._boot_ms
