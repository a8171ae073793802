"""Dramatiq's side: its Redis broker, which acknowledges after the job."""

from __future__ import annotations

import os
import sys
import time

import dramatiq  # type: ignore[import-not-found,unused-ignore] # of the extra `bench`
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found,unused-ignore]

from benchmarks.worker_apps.marks import REDELIVER_S, mark

#: Dramatiq searches for a dead worker's jobs at random, on one command in a thousand; here on every one if the trial
#: asks for it.
_GIVEN = {"heartbeat_timeout": REDELIVER_S * 1000, "maintenance_chance": 1_000_000} if REDELIVER_S else {}
dramatiq.set_broker(RedisBroker(url=os.environ.get("BENCH_STORE", "redis://127.0.0.1:6379/0"), **_GIVEN))


@dramatiq.actor(actor_name="nothing", queue_name="dramatiq-bench")  # type: ignore[untyped-decorator,unused-ignore]
def nothing(sent_ns: int) -> None:
    """Do nothing but leave the mark."""
    mark(sent_ns)


def send(count: int, per_second: float) -> None:
    """Send jobs at this rate; 0 for as fast as possible."""
    began = time.monotonic()
    for number in range(count):
        if per_second:
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        nothing.send(time.monotonic_ns())


if __name__ == "__main__":
    send(int(sys.argv[1]), float(sys.argv[2]))
