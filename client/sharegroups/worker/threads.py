"""Runs blocking handlers on threads. Each thread takes the next job by itself, so a slow job does not delay others.

A thread cannot be stopped from outside, so handlers with a time-out run in processes instead. An idle thread waits on
its own lock, its "bell". It runs as little code as possible between the bell and the handler, since that code delays
the start of each job.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from sharegroups.worker.core.policy import Kind, Verdict, described
from sharegroups.worker.job import Job, JobInfo, enter, run_blocking
from sharegroups.worker.pools import Finished, Report

log = logging.getLogger("sharegroups.worker")

#: The maximum time that the loop waits, after ringing a bell, for a thread to take a job, in seconds. Without this wait
#: the loop would keep the interpreter lock, and the woken thread would have to wait for the loop's next pause.
_YIELD_S: Final = 0.001


class ThreadPool:
    """A pool of `size` threads. They do not keep the process from exiting."""

    def __init__(self, size: int, report: Report) -> None:
        self.size = size
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._done: deque[Finished] = deque()
        self._at_work: dict[int, Job] = {}
        #: Counted separately, by the loop alone, because a job that a thread is just taking or has just finished is not
        #: in any list.
        self.in_hand = 0
        #: The bells of the threads that wait for a job; the one that worked most recently is rung first.
        self._idle: deque[threading.Lock] = deque()
        #: The lock on which `submit` waits for a thread to take a job.
        self._yielding: deque[threading.Lock] = deque(maxlen=1)
        self._report_due = False
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._live, args=(number,), name=f"sharegroups-job-{number}", daemon=True)
            for number in range(size)
        ]

    @property
    def running(self) -> int:
        """How many jobs are running."""
        return len(self._at_work)

    @property
    def at_work(self) -> list[Job]:
        """The jobs that are running, or have ended and have not been reported yet."""
        return [*list(self._at_work.values()), *(one.job for one in list(self._done))]

    @property
    def waiting(self) -> int:
        """How many jobs wait for a thread."""
        return len(self._ready)

    async def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue these jobs, wake an idle thread for each, and wait briefly until one of the threads takes a job."""
        jobs = list(jobs)
        self.in_hand += len(jobs)
        self._ready.extend(jobs)
        bells = self._idle_bells(len(jobs))
        if bells:
            taken = _held()
            self._yielding.append(taken)
            for bell in bells:
                bell.release()
            taken.acquire(timeout=_YIELD_S)

    def _idle_bells(self, count: int) -> list[threading.Lock]:
        bells: list[threading.Lock] = []
        with suppress(IndexError):  # fewer threads than that are idle
            for _ in range(count):
                bells.append(self._idle.pop())
        return bells

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the waiting jobs for which `which` is true."""
        taken = []
        for job in filter(which, list(self._ready)):
            with suppress(ValueError):  # a thread has already taken it
                self._ready.remove(job)
                taken.append(job)
        self.in_hand -= len(taken)
        return taken

    def abandon(self) -> list[Job]:
        """Return the running jobs, which cannot be stopped; their end will not be reported. Jobs that have ended are
        reported."""
        ended = set(self._report_ended())
        self._stopped = True
        return [job for job in self._at_work.values() if job not in ended]

    async def stop(self) -> None:
        """Let the threads end after their current job, without waiting for them."""
        self._stopped = True
        for bell in self._idle_bells(self.size):
            bell.release()

    def _live(self, number: int) -> None:
        """Work until the pool stops. An exception raised outside of a handler, such as one that other code sets in this
        thread, fails at most the job; it never ends the thread (CL-148)."""
        while not self._stopped:
            try:
                self._work(number)
            except BaseException as error:
                self._handle_interruption(number, error)

    def _handle_interruption(self, number: int, error: BaseException) -> None:
        with suppress(BaseException):  # logging runs user code too
            log.error("a handler thread was interrupted by %s; the thread continues", described(error))
        if (job := self._at_work.pop(number, None)) is not None:
            why = f"its thread was interrupted: {described(error)}"
            self._end(Finished(job, Verdict(Kind.FAILED, why), 0.0))

    def _work(self, number: int) -> None:
        clock, bell = time.perf_counter, _held()
        while (job := self._next(bell)) is not None:
            self._at_work[number] = job
            message = job.message
            enter(partial(JobInfo.of, job))
            began = clock()
            verdict = run_blocking(job.spec, message.value())
            finished = Finished(job, verdict, clock() - began)
            del self._at_work[number]
            self._end(finished)

    def _end(self, finished: Finished) -> None:
        self._done.append(finished)
        if not self._report_due:
            self._report_due = True
            with suppress(RuntimeError):  # the loop is closed: the worker has ended without waiting for this job
                self._loop.call_soon_threadsafe(self._report_ended)

    def _next(self, bell: threading.Lock) -> Job | None:
        """Wait for the next job and return it; None once the pool has stopped."""
        while not self._stopped:
            try:
                job = self._ready.popleft()
            except IndexError:
                self._wait(bell)
                continue
            if self._yielding:
                with suppress(IndexError):  # another thread has released it
                    self._yielding.pop().release()
            return job
        return None

    def _wait(self, bell: threading.Lock) -> None:
        self._idle.append(bell)
        if self._ready or self._stopped:  # a job or the stop came before this bell could ring
            with suppress(ValueError):  # the bell is already being rung: wait for that
                self._idle.remove(bell)
                return
        bell.acquire()

    def _report_ended(self) -> list[Job]:
        """Report the ended jobs and return them. A job that ends after `_report_due` has been reset causes another
        call."""
        self._report_due = False
        done = self._done
        finished = [done.popleft() for _ in range(len(done))]
        self.in_hand -= len(finished)
        if finished and not self._stopped:
            self._report(finished)
        return [one.job for one in finished]


def _held() -> threading.Lock:
    """Return a lock that is already taken."""
    lock = threading.Lock()
    lock.acquire()
    return lock
