"""taskiq's side: the list broker of taskiq-redis, its fastest; it acknowledges before the job is run."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from taskiq_redis import ListQueueBroker  # type: ignore[import-not-found,unused-ignore] # of the extra `bench`

from benchmarks.worker_apps.marks import mark

broker = ListQueueBroker(os.environ.get("BENCH_STORE", "redis://127.0.0.1:6379/0"), queue_name="taskiq-bench")


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
