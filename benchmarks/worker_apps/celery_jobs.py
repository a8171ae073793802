"""Celery's side, with the settings that its documentation names for many short tasks."""

from __future__ import annotations

import os
import sys
import time

from celery import Celery  # type: ignore[import-not-found,unused-ignore] # of the extra `bench`

from benchmarks.worker_apps.marks import REDELIVER_S, mark

app = Celery("bench", broker=os.environ.get("BENCH_STORE", "redis://127.0.0.1:6379/0"))
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, task_acks_late=True)
if REDELIVER_S:
    # By default it searches for such jobs at every tenth of its checks, which run every 10 s.
    at_each_check = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    app.conf.broker_transport_options = {"visibility_timeout": REDELIVER_S} | at_each_check


@app.task(name="nothing")  # type: ignore[untyped-decorator,unused-ignore]
def nothing(sent_ns: int) -> None:
    """Do nothing but leave the mark."""
    mark(sent_ns)


def send(count: int, per_second: float) -> None:
    """Send jobs at this rate; 0 for as fast as possible."""
    began = time.monotonic()
    for number in range(count):
        if per_second:
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        nothing.delay(time.monotonic_ns())


if __name__ == "__main__":
    send(int(sys.argv[1]), float(sys.argv[2]))
