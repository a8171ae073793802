"""Runs asyncio handlers, one task per job; a time-out cancels the task.

If a handler swallows its cancellation, that is logged; its task is left running, and another job may take its place.
When as many tasks have been left running as may run at once, the worker gives up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from sharegroups.worker.core.policy import Kind, Verdict
from sharegroups.worker.job import Job, JobInfo, enter, run_async
from sharegroups.worker.pools import Finished, Report, WorkerError

log = logging.getLogger("sharegroups.worker")

#: How long a cancelled handler may take to end, in seconds.
SWALLOW_S: Final = 5.0


class TaskPool:
    """A pool of at most `size` tasks. `give_up`: called with the error when too many handlers cannot be stopped."""

    def __init__(self, size: int, report: Report, give_up: Callable[[WorkerError], None]) -> None:
        self.size = size
        self._report = report
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._at_work: dict[asyncio.Task[None], Job] = {}
        self._timed_out: set[Job] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._finished: list[Finished] = []

    @property
    def running(self) -> int:
        """How many jobs are running."""
        return len(self._at_work)

    @property
    def at_work(self) -> list[Job]:
        """The jobs that are running."""
        return list(self._at_work.values())

    @property
    def in_hand(self) -> int:
        """How many jobs are waiting, are running, or have ended and are not reported yet."""
        return len(self._ready) + len(self._at_work) + len(self._finished)

    @property
    def waiting(self) -> int:
        """How many jobs are waiting for their turn."""
        return len(self._ready)

    async def start(self) -> None:
        """Do nothing: each job starts its own task."""

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue these jobs, and start as many as may run."""
        self._ready.extend(jobs)
        self._begin()

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the waiting jobs for which `which` is true."""
        taken = [job for job in self._ready if which(job)]
        if taken:
            gone = set(taken)
            self._ready = deque(job for job in self._ready if job not in gone)
        return taken

    def abandon(self) -> list[Job]:
        """Cancel the running jobs and return them; their end will not be reported. Jobs that have ended are
        reported."""
        self._stopped = True
        self._report_ended()
        for task in self._at_work:
            task.cancel()
        return list(self._at_work.values())

    async def stop(self) -> None:
        """Wait until the cancelled tasks have ended, so that no record goes back to the group while its handler is
        running. If a handler swallows its cancellation, that is logged, and it is left running."""
        if not self._stopped:
            self.abandon()
        if not self._at_work:
            return
        _, alive = await asyncio.wait(self._at_work, timeout=SWALLOW_S)
        for task in alive:
            job = self._at_work[task]
            log.error(
                "%s: %s was cancelled as the worker stopped and did not end within %g s: it swallows "
                "asyncio.CancelledError. It keeps running, and its record goes back to the group, so its job is run "
                "again meanwhile; let it re-raise CancelledError",
                job.place, job.spec.name, SWALLOW_S,
            )  # fmt: skip

    def _begin(self) -> None:
        while self._ready and len(self._at_work) < self.size:
            job = self._ready.popleft()
            task = self._loop.create_task(self._run(job), name=f"{job.spec.name} ({job.place})")
            self._at_work[task] = job

    async def _run(self, job: Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        timeout = job.spec.timeout
        timer = None if timeout is None else self._loop.call_later(timeout, self._expire, task, job)
        enter(partial(JobInfo.of, job))
        began = self._loop.time()
        verdict = await run_async(job.spec, job.message.value())
        if timer is not None:
            timer.cancel()
        if job in self._timed_out:
            self._timed_out.discard(job)
            # A handler that succeeds just as it times out has succeeded.
            verdict = verdict if verdict.kind is Kind.DONE else replace(_timed_out(job), note=verdict.note)
        self._ended(task, Finished(job, verdict, self._loop.time() - began))

    def _expire(self, task: asyncio.Task[None], job: Job) -> None:
        self._timed_out.add(job)
        task.cancel()
        self._loop.call_later(SWALLOW_S, self._abandon_task, task, job)

    def _abandon_task(self, task: asyncio.Task[None], job: Job) -> None:
        """Fail a job whose handler did not end after its cancellation, and leave the handler running."""
        if task not in self._at_work or self._stopped:
            return
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        log.error(
            "%s: %s was cancelled after %g s and did not end within %g s more: it swallows asyncio.CancelledError. Its "
            "job counts as failed, and it keeps running beside the others; let it re-raise CancelledError",
            job.place, job.spec.name, job.spec.timeout or 0, SWALLOW_S,
        )  # fmt: skip
        self._ended(task, Finished(job, _timed_out(job), (job.spec.timeout or 0) + SWALLOW_S))
        if len(self._abandoned) >= self.size:
            self._give_up(
                WorkerError(
                    f"{len(self._abandoned)} handlers run on after their cancellation, as many as may run at once: "
                    "the worker ends, since only that stops them"
                )
            )

    def _ended(self, task: asyncio.Task[None], finished: Finished) -> None:
        """Report a job once, together with others that end in the same iteration of the loop."""
        if self._at_work.pop(task, None) is None or self._stopped:
            return
        if not self._finished:
            self._loop.call_soon(self._report_ended)
        self._finished.append(finished)

    def _report_ended(self) -> None:
        finished, self._finished = self._finished, []
        if not self._stopped:
            self._begin()
        if finished:
            self._report(finished)


def _timed_out(job: Job) -> Verdict:
    return Verdict(Kind.FAILED, f"it did not return within its timeout of {job.spec.timeout:g} s, and was cancelled")
