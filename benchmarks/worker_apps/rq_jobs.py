"""RQ's side: its worker, which forks for each job; a job whose worker died is retried only if it was sent with
`Retry`."""

from __future__ import annotations

import os
import sys
import time

from redis import Redis

from benchmarks.worker_apps.marks import mark

QUEUE = "rq-bench"


def nothing(sent_ns: int) -> None:
    """Do nothing but leave the mark."""
    mark(sent_ns)


def send(count: int, per_second: float) -> None:
    """Send jobs at this rate; 0 for as fast as possible."""
    from rq import Queue, Retry  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - of the extra `bench`

    queue = Queue(QUEUE, connection=Redis.from_url(os.environ["BENCH_STORE"]))
    began = time.monotonic()
    for number in range(count):
        if per_second:
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        queue.enqueue("benchmarks.worker_apps.rq_jobs.nothing", time.monotonic_ns(), result_ttl=0, retry=Retry(max=3))


if __name__ == "__main__":
    send(int(sys.argv[1]), float(sys.argv[2]))
