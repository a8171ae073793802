"""Runs blocking handlers in their own processes: a time-out kills the process, and a crash fails only its job.

A process runs one job at a time, and is replaced when it ends. Processes are spawned, never forked from this one, since
gRPC's threads do not survive a fork. Each leads its own process group, and is watched directly, because its pipe does
not show that it has ended while a child that a handler forked still holds the pipe open.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from sharegroups.worker import child
from sharegroups.worker.core.policy import Kind, Verdict, described
from sharegroups.worker.job import RUN_AT_IMPORT_STATUS, Job, JobSpec
from sharegroups.worker.pipe import Pipe
from sharegroups.worker.pools import Finished, Report, WorkerError

log = logging.getLogger("sharegroups.worker")

#: The worker gives up after this many processes in a row have ended before they were ready.
_FAILED_STARTS_MAX: Final = 3
_START_S: Final = 60.0
#: How long processes may take to exit once the worker stops, in seconds: each client that a handler left open takes up
#: to 5 s (CL-140), and `atexit` functions also need time.
_END_S: Final = 10.0
#: How long a process may keep running after closing its pipe, in seconds.
_CLOSED_S: Final = 5.0
_RUN_AT_IMPORT: Final = (
    "worker.run() is called when a handler process imports the program, so none can start; put it under "
    'if __name__ == "__main__":'
)
_TOP_LEVEL: Final = (
    "A handler, its value function, its outcomes and the worker's hooks must be defined at the top level of a module, "
    'under their own names, and not under if __name__ == "__main__":'
)


class ProcessPool:
    """A pool of `size` processes. `give_up`: called with the error when no more processes can be started."""

    def __init__(
        self, size: int, specs: Mapping[str, JobSpec], report: Report, give_up: Callable[[WorkerError], None]
    ) -> None:
        self.size = size
        self._report = report
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._packed = _packed(specs)
        self._ready: deque[Job] = deque()
        self._slots: list[_Slot] = []
        self._failed_starts = 0
        self._started = asyncio.Event()
        self._error: WorkerError | None = None
        self._stopped = False

    @property
    def running(self) -> int:
        """How many jobs are running."""
        return sum(slot.job is not None for slot in self._slots)

    @property
    def at_work(self) -> list[Job]:
        """Always empty: a job in another process cannot block this one."""
        return []

    @property
    def waiting(self) -> int:
        """How many jobs wait for a process."""
        return len(self._ready)

    @property
    def in_hand(self) -> int:
        """How many jobs are waiting or running. Those that end are reported immediately."""
        return self.running + self.waiting

    async def start(self) -> None:
        """Start the processes, and wait until one of them is ready. Raises WorkerError if none can start."""
        for _ in range(self.size):
            self._add()
        try:
            await asyncio.wait_for(self._started.wait(), _START_S)
        except TimeoutError:
            raise WorkerError(f"no handler process was ready within {_START_S:g} s") from None
        if self._error is not None:
            raise self._error

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue these jobs, and give one to each idle process."""
        self._ready.extend(jobs)
        for slot in self._slots:
            self._next(slot)

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the waiting jobs for which `which` is true."""
        taken = [job for job in self._ready if which(job)]
        if taken:
            gone = set(taken)
            self._ready = deque(job for job in self._ready if job not in gone)
        return taken

    def abandon(self) -> list[Job]:
        """Kill the processes that run a job, and return their jobs."""
        self._stopped = True
        left = []
        for slot in self._slots:
            if slot.job is not None:
                left.append(slot.job)
                slot.kill()
        return left

    async def stop(self) -> None:
        """End all processes: an idle one exits when its pipe is closed. Those that do not exit in time are killed,
        which is logged."""
        self._stopped = True
        for slot in self._slots:
            slot.close(self._loop)
        await self._loop.run_in_executor(None, self._join)

    def _join(self) -> None:
        until_s = time.monotonic() + _END_S
        late = [slot for slot in self._slots if not slot.wait_until(until_s)]
        if late:
            log.error(
                "%d handler processes did not end within %g s after their last job, and were killed: their atexit "
                "functions, or what they wait for at their end, take too long. What they had not sent is lost",
                len(late), _END_S,
            )  # fmt: skip
        for slot in self._slots:
            slot.release()

    # One process.

    def _add(self) -> None:
        slot = _Slot(self._packed, self._loop)
        self._slots.append(slot)
        self._loop.add_reader(slot.work.fileno(), self._heard, slot)
        if slot.watch is not None:
            self._loop.add_reader(slot.watch, self._ended, slot)

    def _next(self, slot: _Slot) -> None:
        if slot.job is not None or not slot.is_ready or slot.is_over or not self._ready or self._stopped:
            return
        job = slot.job = self._ready.popleft()
        slot.began = self._loop.time()
        message = job.message
        info = (message.topic(), message.partition(), message.offset(), job.delivery_count)
        try:
            slot.work.send((job.spec.topic, (*info, message.key(), message.headers()), message.value()))
        except OSError:  # this process has just ended, so another one will get the job
            self._ready.appendleft(slot.done() or job)
            return
        if job.spec.timeout is not None:
            slot.timer = self._loop.call_later(job.spec.timeout, self._expire, slot)

    def _heard(self, slot: _Slot) -> None:
        """Read the messages of the process, and notice when it has closed its pipe."""
        for heard in slot.work.read():
            self._handle_message(slot, heard)
        if slot.work.has_ended:
            self._closed(slot)

    def _handle_message(self, slot: _Slot, heard: Any) -> None:
        if isinstance(heard, child.Unable):
            self._unable(heard)
            return
        if heard == "ready":
            self._failed_starts = 0
            slot.is_ready = True
            self._started.set()
        else:
            job = slot.done()
            assert job is not None
            self._finished(Finished(job, *heard))
        self._next(slot)

    def _expire(self, slot: _Slot) -> None:
        slot.is_late = True
        slot.kill()

    def _closed(self, slot: _Slot) -> None:
        """Handle a closed pipe: the process is ending, or a handler has closed a file descriptor that it does not
        own."""
        self._loop.remove_reader(slot.work.fileno())
        if slot.watch is None:
            self._ended(slot)
        else:
            slot.killer = self._loop.call_later(_CLOSED_S, slot.kill)

    def _ended(self, slot: _Slot) -> None:
        """Handle the end of a process: its job, if it has one, has failed, and another process takes its place."""
        slot.is_over = True
        for heard in slot.work.read():  # what it sent just before its end
            self._handle_message(slot, heard)
        unbegun = slot.job is not None and slot.work.is_sending and not slot.is_late
        slot.close(self._loop)
        self._slots.remove(slot)
        slot.release()
        how, job, seconds = _exit_text(slot.process.exitcode), slot.done(), self._loop.time() - slot.began
        if job is not None and unbegun:  # the process never received all of it
            self._ready.appendleft(job)
        elif job is not None:
            why = f"its process {how}"
            if slot.is_late:
                why = f"it did not return within its timeout of {job.spec.timeout:g} s, and its process was ended"
            self._finished(Finished(job, Verdict(Kind.FAILED, why), seconds))
        if self._stopped:
            return
        if not slot.is_ready:
            self._failed_starts += 1
            if slot.process.exitcode == RUN_AT_IMPORT_STATUS:
                self._fail(WorkerError(_RUN_AT_IMPORT))
                return
            if self._failed_starts >= _FAILED_STARTS_MAX:
                self._fail(WorkerError(f"handler processes end before they are ready: the last one {how}; see above"))
                return
        elif job is None:
            log.error("an idle handler process %s; another one takes its place", how)
        self._add()
        for other in self._slots if unbegun else ():
            self._next(other)

    def _unable(self, heard: child.Unable) -> None:
        """Log the error and give up, since another process would fail in the same way."""
        if not self._stopped:
            log.error("%s", heard.trace.rstrip())
            self._fail(WorkerError(f"a handler process cannot import the handlers: {heard.error}. {_TOP_LEVEL}"))

    def _fail(self, error: WorkerError) -> None:
        self._stopped = True
        if self._started.is_set():
            self._give_up(error)
        else:
            self._error = error
            self._started.set()

    def _finished(self, finished: Finished) -> None:
        if not self._stopped:
            self._report([finished])


class _Slot:
    """One process and its current job."""

    def __init__(self, packed: bytes, loop: asyncio.AbstractEventLoop) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self.work = Pipe(ours, loop)
        self.alive: Connection[Any, Any]
        their_alive, self.alive = context.Pipe(duplex=False)
        self.process: SpawnProcess = context.Process(
            target=child.serve, args=(theirs, their_alive, packed), daemon=False, name="sharegroups-jobs"
        )
        self.process.start()
        theirs.close()
        their_alive.close()
        #: A descriptor that is readable once the process has ended; None on systems without one (macOS).
        self.watch = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        self.is_ready = False
        self.is_late = False
        self.is_over = False
        #: The timer that kills the process if it keeps running after closing its pipe.
        self.killer: asyncio.TimerHandle | None = None
        self.job: Job | None = None
        self.began = 0.0
        self.timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        """The id of the process, and of its process group."""
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        """Kill the process and everything its handlers have started, except what has left its process group."""
        with suppress(ProcessLookupError, PermissionError):  # the process group does not exist yet, or no longer exists
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()

    def wait_until(self, until_s: float) -> bool:
        """Wait for the process to end, and return whether it did in time. Do not call this in the loop's thread."""
        left_s = max(0.0, until_s - time.monotonic())
        if self.watch is None:
            self.process.join(left_s)
            return not self.process.is_alive()
        return bool(wait([self.watch], left_s))

    def release(self) -> None:
        """Kill the process and its group, and free its resources. The group is killed before waiting for the process,
        since its id cannot be reused until then."""
        self.kill()
        self.process.join(2.0)
        self.alive.close()
        if self.watch is not None:
            os.close(self.watch)
            self.watch = None

    def done(self) -> Job | None:
        """Clear and return the job, which has ended."""
        job, self.job = self.job, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return job

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the pipe, so that the process exits once its job is done. Closing `alive` would kill it immediately."""
        self.work.close()
        if self.watch is not None:
            loop.remove_reader(self.watch)
        if self.killer is not None:
            self.killer.cancel()


def _packed(specs: Mapping[str, JobSpec]) -> bytes:
    for spec in specs.values():
        try:
            pickle.dumps(spec)
        except Exception as error:
            raise WorkerError(
                f"the job of topic {spec.topic!r} cannot be sent to a process: {described(error)}. {_TOP_LEVEL}"
            ) from error
    return pickle.dumps(dict(specs))


def _exit_text(code: int | None) -> str:
    """Return a text that says how a process ended."""
    if code is None:
        return "closed its connection"
    if code < 0:
        try:
            return f"was killed by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit status {code}"
