"""A job that has ended but whose outcome is not reported yet is still in progress: if the worker shut down then, the
job would run twice (CL-127)."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from sharegroups.worker.core.policy import Kind, Retry
from sharegroups.worker.job import Job, JobSpec
from sharegroups.worker.pools import Finished
from sharegroups.worker.tasks import TaskPool
from sharegroups.worker.threads import ThreadPool
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce

BOUND_S = 20.0


async def job_of(fake: FakeCluster, spec: JobSpec) -> Job:
    produce(fake, 1)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        kept = c.keep_alive(messages).begin()
        return Job(spec, kept.messages[0], kept, 0.0)


@on_fake_cluster()
async def test_a_thread_that_ends_its_job_is_waited_for_until_the_loop_knows(fake: FakeCluster) -> None:
    ended: list[Finished] = []
    pool = ThreadPool(1, ended.extend)
    begun = threading.Event()
    spec = JobSpec("t", lambda _: begun.set(), None, None, Retry(), {}, is_async=False, in_process=False)
    await pool.start()
    pool.submit([await job_of(fake, spec)])
    assert begun.wait(BOUND_S)
    deadline = time.monotonic() + BOUND_S
    while pool.running or pool.waiting:  # the loop does not run meanwhile, so no end is reported
        assert time.monotonic() < deadline
        time.sleep(0.001)  # noqa: ASYNC251 - blocks the loop on purpose
    assert (pool.in_hand, ended) == (1, [])
    assert pool.abandon() == [], "it has ended"
    assert ([one.verdict.kind for one in ended], pool.in_hand) == ([Kind.DONE], 0)
    await pool.stop()


@on_fake_cluster()
async def test_a_task_that_ends_in_this_turn_is_waited_for_too(fake: FakeCluster) -> None:
    ended: list[Finished] = []
    seen: list[tuple[int, int, int]] = []
    pool = TaskPool(1, ended.extend, lambda error: pytest.fail(str(error)))

    def leave() -> None:
        seen.append((pool.running, pool.in_hand, len(ended)))
        assert pool.abandon() == []
        seen.append((pool.running, pool.in_hand, len(ended)))

    async def handler(_: bytes) -> None:
        asyncio.get_running_loop().call_soon(leave)  # runs before the pool's own call, which reports the end

    spec = JobSpec("t", handler, None, None, Retry(), {}, is_async=True, in_process=False)
    pool.submit([await job_of(fake, spec)])
    await asyncio.sleep(1)
    assert seen == [(0, 1, 0), (0, 0, 1)]
    assert [one.verdict.kind for one in ended] == [Kind.DONE]
