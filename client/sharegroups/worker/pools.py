"""What the runner knows of those who run handlers: threads, asyncio tasks, processes."""

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


#: Is told of finished jobs, in the loop.
Report = Callable[[list[Finished]], None]


class Pool(Protocol):
    """Runs at most `size` handlers at once. All calls are made in the loop."""

    size: int

    @property
    def running(self) -> int:
        """How many jobs are being worked on."""
        ...

    @property
    def at_work(self) -> list[Job]:
        """The jobs that are being worked on in this process, or have just ended there."""
        ...

    @property
    def in_hand(self) -> int:
        """How many jobs wait, are being worked on, or have ended and are not reported yet."""
        ...

    @property
    def waiting(self) -> int:
        """How many jobs wait for a handler."""
        ...

    async def start(self) -> None:
        """Begin. Raises WorkerError when it cannot."""
        ...

    def submit(self, jobs: Iterable[Job]) -> None:
        """Run these, in this order, as soon as handlers are free."""
        ...

    def take_back(self, which: Callable[[Job], bool]) -> list[Job]:
        """Take away the waiting jobs of which this is true."""
        ...

    def abandon(self) -> list[Job]:
        """The time for the present jobs is over: stop them where that can be, and report those that have ended.

        Returns those that had not.
        """
        ...

    async def stop(self) -> None:
        """Free what the pool uses. Call it last, when nothing runs or `abandon` has been called."""
        ...


class WorkerError(Exception):
    """A worker cannot start, or cannot go on; the text says why and what to do."""
