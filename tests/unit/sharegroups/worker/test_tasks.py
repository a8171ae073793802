"""asyncio handlers at their time-out: cancelled, logged when they ignore that, and not cancelled endlessly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sharegroups.worker.core.policy import DONE, Kind, Retry
from sharegroups.worker.job import Job, JobSpec
from sharegroups.worker.pools import Finished, WorkerError
from sharegroups.worker.tasks import SWALLOW_S, TaskPool
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce


async def obey(_: bytes) -> None:
    """Sleep, and end when cancelled."""
    await asyncio.sleep(100)


async def swallow(_: bytes) -> None:
    """Ignore every cancellation."""
    for _turn in range(100):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            continue


async def ask_to_end(_: bytes) -> None:
    """Raise an exception that ends a loop and a process."""
    raise KeyboardInterrupt


async def jobs_of(fake: FakeCluster, handler: Callable[..., object], count: int) -> list[Job]:
    produce(fake, count)
    spec = JobSpec("t", handler, None, 2.0, Retry(), {}, is_async=True, in_process=False)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        kept = c.keep_alive(messages).begin()
        return [Job(spec, message, kept, 0.0) for message in kept.messages]


@pytest.mark.rule("CL-122")
@on_fake_cluster()
async def test_a_task_is_cancelled_at_its_time_and_the_next_begins(fake: FakeCluster) -> None:
    ended: list[Finished] = []
    pool = TaskPool(1, ended.extend, lambda error: pytest.fail(str(error)))
    pool.submit(await jobs_of(fake, obey, 2))
    assert (pool.running, pool.waiting) == (1, 1)
    await asyncio.sleep(2.5)
    assert [(one.verdict.kind, round(one.seconds)) for one in ended] == [(Kind.FAILED, 2)]
    assert "within its timeout of 2 s" in ended[0].verdict.why
    await asyncio.sleep(2)
    assert (len(ended), pool.running, pool.waiting) == (2, 0, 0)


@pytest.mark.rule("CL-122")
@on_fake_cluster()
async def test_who_swallows_its_cancellation_is_reported_and_when_all_do_the_worker_gives_up(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[Finished] = []
    gave_up: list[WorkerError] = []
    pool = TaskPool(2, ended.extend, gave_up.append)
    pool.submit(await jobs_of(fake, swallow, 2))
    await asyncio.sleep(2 + SWALLOW_S - 1)
    assert (ended, pool.running) == ([], 2)
    await asyncio.sleep(2)
    assert [one.verdict.kind for one in ended] == [Kind.FAILED, Kind.FAILED]
    assert caplog.text.count("it swallows asyncio.CancelledError") == 2
    assert [str(error).split(",")[0] for error in gave_up] == ["2 handlers run on after their cancellation"]
    await asyncio.sleep(200)
    assert len(ended) == 2, "their late ends are not reported"


@pytest.mark.rule("CL-120")
@on_fake_cluster()
async def test_an_exception_that_would_end_the_loop_is_a_failed_job(fake: FakeCluster) -> None:
    ended: list[Finished] = []
    pool = TaskPool(4, ended.extend, lambda error: pytest.fail(str(error)))
    pool.submit(await jobs_of(fake, ask_to_end, 1))
    await asyncio.sleep(0.1)
    assert [one.verdict.why for one in ended] == ["KeyboardInterrupt"]
    assert ended[0].verdict != DONE


@pytest.mark.rule("CL-127")
@on_fake_cluster()
async def test_what_is_abandoned_is_cancelled_and_not_reported(fake: FakeCluster) -> None:
    ended: list[Finished] = []
    pool = TaskPool(1, ended.extend, lambda error: pytest.fail(str(error)))
    jobs = await jobs_of(fake, obey, 3)
    pool.submit(jobs)
    assert pool.take_back(lambda job: job.message.offset() == 1) == [jobs[1]]
    assert pool.abandon() == [jobs[0]]
    await pool.stop()
    assert ended == []
