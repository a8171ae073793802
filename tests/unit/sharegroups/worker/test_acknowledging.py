"""Releases with a delay: the leader keeps the delay if it supports that, otherwise the worker holds the record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroups.aio import ShareConsumer
from sharegroups.worker import acknowledging
from sharegroups.worker.acknowledging import Acknowledging
from sharegroups.worker.core.policy import Decision, Retry, Step
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import Job, JobSpec
from tests.support.fake_cluster import share
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce, released

SPEC = JobSpec("t", print, None, None, Retry(), {}, is_async=False, in_process=False)


async def polled(c: ShareConsumer) -> list[Job]:
    """Return the jobs of one poll, with their locks kept alive."""
    messages = await c.poll(5)
    kept = c.keep_alive(messages).begin()
    return [Job(SPEC, message, kept, 0.0) for message in kept.messages]


class Woken:
    """Counts the requests for a turn of the worker's loop."""

    def __init__(self, c: ShareConsumer) -> None:
        self.times = 0
        self.acknowledging = Acknowledging(c, Tally(["t"]), self)

    def __call__(self) -> None:
        self.times += 1


@pytest.mark.rule("CL-123")
@on_fake_cluster()
async def test_the_leader_keeps_the_delay_where_it_knows_delays(fake: FakeCluster) -> None:
    produce(fake, 1)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (job,) = await polled(c)
        woken = Woken(c)
        woken.acknowledging.settle(job, Decision(Step.RELEASE, 20.0))
        assert woken.acknowledging.held == 0
        began = asyncio.get_running_loop().time()
        (again,) = await c.poll(60)
        assert again.delivery_count() == 2
        assert asyncio.get_running_loop().time() - began >= 20


@pytest.mark.rule("CL-123")
@on_fake_cluster()
async def test_a_release_without_a_delay_leaves_it_to_the_groups_back_off(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        as_the_group_says, at_once = await polled(c)
        acknowledging = Woken(c).acknowledging
        acknowledging.settle(as_the_group_says, Decision(Step.RELEASE, None))
        acknowledging.settle(at_once, Decision(Step.RELEASE, 0.0))
        assert list((await c.commit_sync()).values()) == [None]
        delays = {
            first + number: (delays[number] if len(delays) > 1 else delays[0] if delays else -1)
            for first, last, _, delays in released(fake)
            for number in range(last - first + 1)
        }
        assert delays == {0: -1, 1: 0}


@pytest.mark.rule("CL-123")
@on_fake_cluster()
async def test_a_leader_of_before_has_the_worker_hold_the_record(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "DELAY_MAX_MS", 0)
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        failed, done = await polled(c)
        woken = Woken(c)
        woken.acknowledging.settle(done, Decision(Step.ACCEPT))
        woken.acknowledging.settle(failed, Decision(Step.RELEASE, 100.0))
        assert woken.acknowledging.held == 1
        for _ in range(95):
            assert (await c.poll(1)).is_empty()
        assert fake.states("t") == {0: "acquired", 1: "acknowledged"}, "its lock of 30 s is kept alive meanwhile"
        await asyncio.sleep(6)
        assert woken.times == 1
        woken.acknowledging.send_due()
        (again,) = await c.poll(5)
        assert (again.offset(), again.delivery_count()) == (0, 2)


@pytest.mark.rule("CL-123")
@on_fake_cluster()
async def test_it_holds_so_many_at_most_and_says_so(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(share, "DELAY_MAX_MS", 0)
    monkeypatch.setattr(acknowledging, "HELD_MAX", 2)
    produce(fake, 4)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        jobs: list[Any] = await polled(c)
        woken = Woken(c)
        for job in jobs:
            woken.acknowledging.settle(job, Decision(Step.RELEASE, 100.0))
        assert woken.acknowledging.held == 2
        assert caplog.text.count("2 failed jobs wait for their delay in this worker, as many as it holds") == 1
        assert [message.offset() for message in await c.poll(5)] == [2, 3]
        assert woken.acknowledging.release_held() == 2
        await c.commit_sync()
        assert fake.states("t")[0] == "available"


@pytest.mark.rule("CL-123")
@pytest.mark.parametrize(("delay", "asked"), [(3 * 86_400.0, "3 days"), (1e300, "1e+300 s"), (float("inf"), "inf s")])
def test_a_delay_above_the_groups_maximum_is_shortened_and_reported(delay: float, asked: str) -> None:
    @on_fake_cluster()
    async def story(fake: FakeCluster) -> None:
        produce(fake, 3)
        async with consumer(fake, **EXPLICIT) as c:
            c.subscribe(["t"])
            long, done, short = await polled(c)
            woken = Woken(c)
            did = woken.acknowledging.settle(long, Decision(Step.RELEASE, delay, "asked"))
            woken.acknowledging.settle(done, Decision(Step.ACCEPT))
            as_asked = Decision(Step.RELEASE, 86_400.0, "as asked")
            assert woken.acknowledging.settle(short, as_asked) == as_asked
            assert did.delay == 86_400
            assert did.log_text.startswith(f"it is redelivered in 1 day, not in {asked}: the group allows no longer")
            assert "sharegroups.retry.delay.max.ms" in did.log_text
            assert list((await c.commit_sync()).values()) == [None]
            assert released(fake) == [(0, 2, [2, 1, 2], [86_400_000, -1, 86_400_000])]

    story()
