"""taskiq's side with comparable guarantees: its stream broker, whose jobs are acknowledged after they have run."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found,unused-ignore] # of the extra `bench`

from benchmarks.worker_apps.marks import REDELIVER_S, mark

_GIVEN = {"idle_timeout": REDELIVER_S * 1000} if REDELIVER_S else {}
broker = RedisStreamBroker(
    os.environ.get("BENCH_STORE", "redis://127.0.0.1:6379/0"),
    queue_name="taskiq-stream-bench",
    consumer_id="0",
    **_GIVEN,
)


@broker.task(task_name="nothing")  # type: ignore[untyped-decorator,unused-ignore]
async def nothing(sent_ns: int) -> None:
    """Do nothing but leave the mark."""
    mark(sent_ns)


async def send(count: int, per_second: float) -> None:
    """Send jobs at this rate; 0 for as fast as possible."""
    await broker.startup()
    began = time.monotonic()
    for number in range(count):
        if per_second:
            await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
        await nothing.kiq(time.monotonic_ns())
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(send(int(sys.argv[1]), float(sys.argv[2])))
