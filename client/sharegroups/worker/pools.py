"""The runner's interface to the pools that run handlers: threads, asyncio tasks, processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from sharegroups.worker.core.policy import Verdict
from sharegroups.worker.job import Job


class Finished(NamedTuple):
    """A job whose handler has ended; `seconds` is how long it ran."""

    job: Job
    verdict: Verdict
    seconds: float


#: A function that is called on the event loop with finished jobs.
Report = Callable[[list[Finished]], None]


class Pool(Protocol):
    """Runs at most `size` handlers at once. All calls are made on the event loop."""

    size: int

    @property
    def running(self) -> int:
        """How many jobs are running."""
        ...

    @property
    def at_work(self) -> list[Job]:
        """The jobs that are running in this process, or have just ended in it."""
        ...

    @property
    def in_hand(self) -> int:
        """How many jobs are waiting, are running, or have ended and are not reported yet."""
        ...

    @property
    def waiting(self) -> int:
        """How many jobs wait for a handler."""
        ...

    async def start(self) -> None:
        """Start the pool. Raises WorkerError when it cannot start."""
        ...

    def submit(self, jobs: Iterable[Job]) -> None:
        """Run these jobs, in this order, as soon as handlers are free."""
        ...

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the waiting jobs for which `which` is true."""
        ...

    def abandon(self) -> list[Job]:
        """Stop the running jobs if possible, since the grace period is over, and report those that have ended.

        Returns the jobs that have not ended.
        """
        ...

    async def stop(self) -> None:
        """Free the pool's resources. Call it last, when nothing runs or `abandon` has been called."""
        ...


class WorkerError(Exception):
    """A worker cannot start or continue; the text says why and what to do."""
