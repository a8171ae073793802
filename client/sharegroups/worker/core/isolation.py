"""Which records a worker runs alone, and when: those that have failed often may be what ends the process (CL-146).

Pure: times are passed in, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

#: For how long after the last request for records one may still bring some, s; fetch.max.wait.ms is half of it.
PARKED_S: Final = 1.0
#: A record that is to run alone waits for so long, s, until the jobs that run have ended; then it runs beside them.
WAIT_S: Final = 60.0

Job = TypeVar("Job")


def runs_alone(delivery_count: int, group_limit: int) -> bool:
    """Whether the leader hands out this delivery in parts (PL-241), or by itself as the last one (PL-240).

    `delivery_count`: that of the record, this delivery included.
    """
    return delivery_count > max(2, (group_limit + 1) // 2) or (group_limit > 2 and delivery_count >= group_limit)


class Isolation(Generic[Job]):
    """The records of a worker that run alone, one at a time. While it holds one, the worker asks for nothing more."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._asked_s = float("-inf")
        self._since_s = 0.0

    @property
    def waiting(self) -> int:
        """How many records wait for their turn."""
        return len(self._waiting)

    @property
    def is_running(self) -> bool:
        """Whether one of them is being worked on."""
        return self._running is not None

    def runs(self, job: Job) -> bool:
        """Whether this one has been begun, and has not ended."""
        return job is self._running

    @property
    def holds_any(self) -> bool:
        """Whether one waits or is being worked on."""
        return self._running is not None or bool(self._waiting)

    def asked(self, now_s: float) -> None:
        """A request for records may have been sent until now: it may bring some for PARKED_S more."""
        self._asked_s = now_s

    def add(self, jobs: Iterable[Job], now_s: float) -> None:
        """These are to run alone."""
        if not self._waiting:
            self._since_s = now_s
        self._waiting.extend(jobs)

    def due_in(self, others: int, now_s: float) -> float | None:
        """In how many seconds the next one may begin; None: not before a job has ended. `others`: jobs in hand."""
        if self._running is not None or not self._waiting:
            return None
        quiet_s = self._asked_s + PARKED_S - now_s
        return max(0.0, quiet_s, self._since_s + WAIT_S - now_s if others else 0.0)

    def begin(self) -> Job:
        """Take the next one; call it when it is due."""
        self._running = self._waiting.popleft()
        return self._running

    def ended(self, job: Job, now_s: float) -> None:
        """Any job of the worker has ended, or its record goes back to the group."""
        if job is self._running:
            self._running = None
            self._since_s = now_s

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Take away the waiting ones of which this is true."""
        taken = [job for job in self._waiting if which(job)]
        self._waiting = deque(job for job in self._waiting if not which(job))
        return taken
