"""Decides which records a worker runs alone, and when: a record that has failed often may crash the process (CL-146).

Pure: times are passed in, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

#: Records may still arrive until this long after the last request, in seconds; fetch.max.wait.ms is half of it.
PARKED_S: Final = 1.0
#: How long a record that should run alone waits for running jobs to end, in seconds; after that it runs alongside them.
WAIT_S: Final = 60.0

Job = TypeVar("Job")


def runs_alone(delivery_count: int, group_limit: int) -> bool:
    """Return whether a record must run alone: its earlier deliveries have reached the leader's throttle count (PL-241),
    or this is its last delivery of more than two (PL-240).

    `delivery_count`: the record's delivery count, including this delivery.
    """
    return delivery_count > max(2, (group_limit + 1) // 2) or (group_limit > 2 and delivery_count >= group_limit)


class Isolation(Generic[Job]):
    """The records that a worker runs alone, one at a time. While there are any, the worker requests no others."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._asked_s = float("-inf")
        self._since_s = 0.0

    @property
    def waiting(self) -> int:
        """How many of these records are waiting for their turn."""
        return len(self._waiting)

    @property
    def is_running(self) -> bool:
        """True while the job of one of these records is running."""
        return self._running is not None

    def runs(self, job: Job) -> bool:
        """Return whether this job is the one that is running alone now."""
        return job is self._running

    @property
    def holds_any(self) -> bool:
        """True while one of these records is waiting or its job is running."""
        return self._running is not None or bool(self._waiting)

    def asked(self, now_s: float) -> None:
        """Note that a request may have been sent until now, so that records may arrive for PARKED_S more."""
        self._asked_s = now_s

    def add(self, jobs: Iterable[Job], now_s: float) -> None:
        """Add jobs that are to run alone."""
        if not self._waiting:
            self._since_s = now_s
        self._waiting.extend(jobs)

    def due_in(self, others: int, now_s: float) -> float | None:
        """Return the seconds until the next one may start; None if one is running or none is waiting.

        `others`: the number of other jobs that the worker has.
        """
        if self._running is not None or not self._waiting:
            return None
        quiet_s = self._asked_s + PARKED_S - now_s
        return max(0.0, quiet_s, self._since_s + WAIT_S - now_s if others else 0.0)

    def begin(self) -> Job:
        """Start the next one, which must be due, and return it."""
        self._running = self._waiting.popleft()
        return self._running

    def ended(self, job: Job, now_s: float) -> None:
        """Note that a job of the worker, of any kind, has ended, or that its record goes back to the group."""
        if job is self._running:
            self._running = None
            self._since_s = now_s

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the waiting jobs for which `which` is true."""
        taken = [job for job in self._waiting if which(job)]
        self._waiting = deque(job for job in self._waiting if not which(job))
        return taken
