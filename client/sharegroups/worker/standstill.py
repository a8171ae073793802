"""Logs what blocks a worker's event loop: a handler, or something that stops the whole process.

While the loop is blocked, no heartbeats or renewals are sent, and the resulting errors only mention leaders (CL-151).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from sharegroups.worker.job import Job

log = logging.getLogger("sharegroups.worker")

#: The interval at which the loop calls `beat` and is checked, in seconds; a standstill of at least `STILL_S` is logged.
_BEAT_S: Final = 0.5
STILL_S: Final = 5.0
_NAMED_MAX: Final = 5


class Standstill:
    """Decides which standstills are logged. Times are seconds of one monotonic clock; two threads may call it."""

    def __init__(self, now_s: float) -> None:
        self._beat_s = self._woke_s = now_s
        self._logged = False

    def beat(self, now_s: float) -> tuple[float, bool] | None:
        """Note that the loop is running. Returns how long it stood still, and whether that was logged meanwhile.

        Returns None if the standstill is too short to be logged.
        """
        still_s, logged = now_s - self._beat_s, self._logged
        self._beat_s, self._logged = now_s, False
        return (still_s, logged) if still_s >= STILL_S else None

    def woke(self, now_s: float) -> float | None:
        """Note that the watching thread is running. Returns how long the loop has stood still, if that must be logged.

        Returns None if the thread itself could not run: the whole process stood still, which the next `beat` reports.
        """
        late, self._woke_s = now_s - self._woke_s >= STILL_S, now_s
        still_s = now_s - self._beat_s
        if late or self._logged or still_s < STILL_S:
            return None
        self._logged = True
        return still_s


@contextmanager
def standstill_logged(at_work: Callable[[], Iterable[Job]]) -> Iterator[None]:
    """Inside the block, log standstills of the running loop. `at_work`: the jobs that are running or have just
    ended."""
    loop, ident = asyncio.get_running_loop(), threading.get_ident()
    state, over = Standstill(time.monotonic()), threading.Event()

    timer = loop.call_soon(lambda: None)

    def beat() -> None:
        nonlocal timer
        if (ended := state.beat(time.monotonic())) is not None:
            _log_end(*ended, at_work())
        timer = loop.call_later(_BEAT_S, beat)

    def watch() -> None:
        while not over.wait(_BEAT_S):
            if (still_s := state.woke(time.monotonic())) is not None:
                _log_standstill(still_s, loop, ident)

    beat()
    threading.Thread(target=watch, name="sharegroups-standstill", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        timer.cancel()


def _log_standstill(still_s: float, loop: asyncio.AbstractEventLoop, ident: int) -> None:
    task, frame = asyncio.current_task(loop), sys._current_frames().get(ident)
    where = traceback.extract_stack(frame)[-1] if frame is not None else None
    log.error(
        "the event loop has been blocked for %.0f s in %s%s: no heartbeats or renewals are sent meanwhile, so locks "
        "are lost and their jobs run again. What an async handler calls must not block: await asyncio's own calls or "
        "asyncio.to_thread, or make it a plain def, which runs on a thread",
        still_s, task.get_name() if task is not None else "a callback",
        f", at {where.filename}:{where.lineno} in {where.name}" if where is not None else "",
    )  # fmt: skip


def _log_end(still_s: float, logged: bool, jobs: Iterable[Job]) -> None:
    if logged:
        log.warning("the event loop runs again, after %.0f s", still_s)
        return
    names = [f"{job.spec.name} ({job.place})" for job in jobs]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    log.error(
        "this process was stopped for %.0f s, with all of its threads: no heartbeats or renewals were sent, so "
        "locks may be lost. At work: %s. C code that keeps Python's interpreter lock does this: run such a handler "
        "with processes=True; or the process was paused, or got no CPU",
        still_s, ", ".join(names[:_NAMED_MAX]) + more if names else "no handler",
    )  # fmt: skip
