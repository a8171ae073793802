"""Blocking handlers on threads. Each thread takes the next job by itself, so a slow job delays no other one.

A thread cannot be stopped from outside: the registration refuses a time-out for these handlers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from sharegroups.worker.job import Job, JobInfo, enter, run_blocking
from sharegroups.worker.pools import Finished, Report


class ThreadPool:
    """`size` threads, which a process that ends does not wait for."""

    def __init__(self, size: int, report: Report) -> None:
        self.size = size
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._done: deque[Finished] = deque()
        self._at_work: dict[int, Job] = {}
        #: Counted apart, by the loop alone: a job that a thread just takes, or has just ended, is in no other list.
        self.in_hand = 0
        self._more = threading.Condition()
        self._asleep = 0
        self._told = False
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"sharegroups-job-{number}", daemon=True)
            for number in range(size)
        ]

    @property
    def running(self) -> int:
        """How many jobs are being worked on."""
        return len(self._at_work)

    @property
    def waiting(self) -> int:
        """How many jobs wait for a thread."""
        return len(self._ready)

    async def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue these, and wake as many threads as there are jobs for."""
        before = len(self._ready)
        jobs = list(jobs)
        self.in_hand += len(jobs)
        self._ready.extend(jobs)
        with self._more:
            idle = min(self._asleep, len(self._ready) - before)
            if idle > 0:
                self._more.notify(idle)
        if idle > 0:
            time.sleep(0)  # lets a woken thread have the interpreter now, not after what this one does next

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Take away the waiting jobs of which this is true."""
        taken = []
        for job in filter(which, list(self._ready)):
            with suppress(ValueError):  # a thread has taken it meanwhile
                self._ready.remove(job)
                taken.append(job)
        self.in_hand -= len(taken)
        return taken

    def abandon(self) -> list[Job]:
        """The jobs that threads still work on; they cannot be stopped. Their end is not reported; what has ended is."""
        ended = set(self._tell())
        self._stopped = True
        return [job for job in self._at_work.values() if job not in ended]

    async def stop(self) -> None:
        """Let the threads end after their present job; nobody waits for it."""
        with self._more:
            self._stopped = True
            self._more.notify_all()

    def _work(self, number: int) -> None:
        clock = time.perf_counter
        while (job := self._next()) is not None:
            self._at_work[number] = job
            message = job.message
            enter(partial(JobInfo.of, message, job.kept))
            began = clock()
            verdict = run_blocking(job.spec, message.value())
            self._done.append(Finished(job, verdict, clock() - began))
            del self._at_work[number]
            if not self._told:
                self._told = True
                with suppress(RuntimeError):  # the loop is closed: the worker has ended without waiting for this job
                    self._loop.call_soon_threadsafe(self._tell)

    def _next(self) -> Job | None:
        """The next job; waits for one. None: the pool has stopped."""
        while not self._stopped:
            try:
                return self._ready.popleft()
            except IndexError:
                with self._more:
                    if not self._ready and not self._stopped:
                        self._asleep += 1
                        self._more.wait()
                        self._asleep -= 1
        return None

    def _tell(self) -> list[Job]:
        """Report what has ended; returns it. A thread that ends a job after `_told` is cleared calls this again."""
        self._told = False
        done = self._done
        finished = [done.popleft() for _ in range(len(done))]
        self.in_hand -= len(finished)
        if finished and not self._stopped:
            self._report(finished)
        return [one.job for one in finished]
