"""The task queues of B12: how to start a worker of each, how to send it jobs, and what it guarantees."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

_APPS: Final = "benchmarks.worker_apps"
_CLI: Final = ("-c", "from sharegroups.cli import run; run()")
#: Stands for the interpreter that has the extra `bench`.
_PYTHON: Final = "{python}"
_STORE: Final = "{store}"


@dataclass(frozen=True, slots=True)
class TaskQueue:
    """One system. `app`: the module that sends its jobs, empty for ours. `scale`: a factor on its number of jobs, so
    that no run is over at once or takes minutes. `keeps`: what becomes of a killed worker's jobs with its defaults."""

    name: str
    words: tuple[str, ...]
    app: str
    scale: float
    keeps: str
    modules: tuple[str, ...] = ()

    def command(self, python: str, store: str) -> list[str]:
        """Return the command for a worker on this store. `python`: the interpreter that has the extra `bench`."""
        return [{_PYTHON: python, _STORE: store}.get(word, word) for word in self.words]

    def jobs(self, jobs: int) -> int:
        """Return how many of `jobs` jobs this system gets."""
        return max(10, int(jobs * self.scale))


def _celery(*pool: str) -> tuple[str, ...]:
    return (_PYTHON, "-m", "celery", "-A", f"{_APPS}.celery_jobs", "worker", *pool, "-l", "WARNING")


_ALL: Final = (
    TaskQueue(
        "worker", (sys.executable, *_CLI, "worker", f"{_APPS}.share_jobs:noop", "--quiet"), "", 20, "again at once"
    ),
    TaskQueue(
        "taskiq", (_PYTHON, "-m", "taskiq", "worker", f"{_APPS}.taskiq_jobs:broker", "--workers", "1"),
        f"{_APPS}.taskiq_jobs", 1, "lost: acknowledged before the job", ("taskiq", "taskiq_redis"),
    ),
    TaskQueue(
        "taskiq-stream", (_PYTHON, "-m", "taskiq", "worker", f"{_APPS}.taskiq_stream_jobs:broker", "--workers", "1"),
        f"{_APPS}.taskiq_stream_jobs", 1, "again after idle_timeout, 10 minutes", ("taskiq", "taskiq_redis"),
    ),
    TaskQueue(
        "celery", _celery("-c", "1"), f"{_APPS}.celery_jobs", 1, "again after visibility_timeout, an hour", ("celery",)
    ),
    TaskQueue(
        "celery-threads", _celery("-P", "threads", "-c", "8"), f"{_APPS}.celery_jobs", 1,
        "again after visibility_timeout, an hour", ("celery",),
    ),
    TaskQueue(
        "dramatiq", (_PYTHON, "-m", "dramatiq", f"{_APPS}.dramatiq_jobs", "-p", "1", "-t", "8"),
        f"{_APPS}.dramatiq_jobs", 1, "again after heartbeat_timeout, a minute, by chance", ("dramatiq",),
    ),
    TaskQueue(
        "rq", (_PYTHON, "-m", "rq.cli", "worker", "rq-bench", "-u", _STORE, "-q", "--job-monitoring-interval", "5",
               "--maintenance-interval", "5"),
        f"{_APPS}.rq_jobs", 0.1, "again if sent with Retry, after a maintenance", ("rq",),
    ),
)  # fmt: skip
SYSTEMS: Final = {system.name: system for system in _ALL}
#: The systems that `python -m benchmarks.workers` runs by default.
DEFAULT: Final = ("worker", "taskiq", "taskiq-stream", "celery", "dramatiq", "rq")
