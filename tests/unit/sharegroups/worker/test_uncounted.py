"""Records for which no handler ran, and jobs that succeeded, do not use up delivery attempts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from sharegroups.aio import ShareConsumer
from sharegroups.messages import Message
from sharegroups.worker import Retry, current_job, runner
from sharegroups.worker.checks import GroupLimits
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import JobSpec
from sharegroups.worker.runner import REMEMBERED_JOBS_MAX, Runner
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.log import TAKEN_BACK_MAX
from tests.support.fake_cluster.stories import on_fake_cluster, produce

Handler = Callable[[bytes], Awaitable[None]]


@asynccontextmanager
async def working(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, handler: Handler, *, grace: float = 20.0, counts: bool = True
) -> AsyncIterator[Runner]:
    """A worker of topic t with four handlers, which is stopped at the end."""
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    spec = JobSpec("t", handler, None, None, Retry(limit=3, backoff=0.1), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings,
        {"t": spec},
        concurrency=4,
        prefetch=500,
        grace=grace,
        cut_off_counts=counts,
        limits=GroupLimits(5),
        tally=Tally(["t"]),
    )
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


def counts(fake: FakeCluster) -> dict[int, int]:
    return {offset: count for offset, (_, _, count) in fake.log("t").states["g"].items()}


@pytest.mark.rule("CL-126")
@on_fake_cluster()
async def test_jobs_that_were_fetched_ahead_and_given_back_have_all_their_tries(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker fetches far too much ahead for jobs that have become slow. Each job fails on its first run."""
    runs: Counter[bytes] = Counter()

    async def handler(value: bytes) -> None:
        number = int(value[1:])
        runs[value] += 1
        await asyncio.sleep(3 if number % 20 < 4 else 0.001)
        if runs[value] == 1:
            raise OSError

    produce(fake, 240)
    async with working(fake, monkeypatch, handler) as worker:
        monkeypatch.setattr(worker._prefetch, "wanted", lambda in_hand, _: max(0, 100 - in_hand))
        for _ in range(300):
            await asyncio.sleep(1)
            if worker._tally.outcomes["t", "accepted"] == 240:
                break
        assert worker._tally.events["given_back"] > 0, "or this shows nothing"
        assert (worker._tally.outcomes["t", "rejected"], worker._tally.outcomes["t", "archived"]) == (0, 0)
        assert worker._tally.outcomes["t", "accepted"] == 240
    assert set(runs.values()) == {2}
    assert "this does not count as a delivery" in caplog.text


@pytest.mark.rule("CL-127")
@on_fake_cluster()
async def test_what_a_stop_finds_unbegun_is_given_back_uncounted(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(value: bytes) -> None:
        await asyncio.sleep(0.001 if int(value[1:]) < 60 else 1)

    produce(fake, 200)
    async with working(fake, monkeypatch, handler) as worker:
        for _ in range(500):
            await asyncio.sleep(0.01)
            if worker._tally.outcomes["t", "accepted"] >= 60:
                break
        await asyncio.sleep(0.1)
        unbegun = sum(pool.waiting for pool in worker._pools.values())
        assert unbegun >= 20
    given_back = [state[2] for state in fake.log("t").states["g"].values() if state[0] == "available"]
    assert (len(given_back), set(given_back)) == (unbegun, {0})


@pytest.mark.rule("CL-127", "CL-145")
@pytest.mark.parametrize("restarts", [5, TAKEN_BACK_MAX])
def test_what_stops_have_cut_off_is_no_try_where_the_setting_says_so(
    restarts: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @on_fake_cluster()
    async def story(fake: FakeCluster) -> None:
        begun: list[int] = []

        async def too_long(_: bytes) -> None:
            begun.append(current_job().delivery_count)
            await asyncio.sleep(1_000)

        async def quick(_: bytes) -> None:
            begun.append(current_job().delivery_count)

        produce(fake, 1)
        for _ in range(restarts):
            async with working(fake, monkeypatch, too_long, grace=1.0, counts=False):
                await asyncio.sleep(3)
        assert fake.states("t") == {0: "available"}
        async with working(fake, monkeypatch, quick, counts=False):
            await asyncio.sleep(3)
        assert begun == [1] * (restarts + 1)
        assert fake.states("t") == {0: "acknowledged"}
        assert caplog.text.count("did not end within 1 s; its job will run again, and this does not count") == restarts

    story()


@pytest.mark.rule("CL-127")
@on_fake_cluster()
async def test_without_the_setting_each_of_them_is_a_try(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_long(_: bytes) -> None:
        await asyncio.sleep(1_000)

    produce(fake, 1)
    for _ in range(2):
        async with working(fake, monkeypatch, too_long, grace=1.0):
            await asyncio.sleep(3)
    assert counts(fake) == {0: 2}


@pytest.mark.rule("CL-126b")
@on_fake_cluster()
async def test_a_job_that_ended_well_and_comes_again_is_accepted_without_being_run(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time the worker sends the outcome, the lock has been lost to a member that then vanished, except the last
    time."""
    caplog.set_level("INFO", logger="sharegroups")
    begun: list[bytes] = []
    states = fake.log("t").states["g"]

    async def handler(value: bytes) -> None:
        begun.append(value)

    produce(fake, 1)
    async with working(fake, monkeypatch, handler) as worker:
        remember, sent = worker._jobs.remember, 0

        def lost(message: Message) -> None:
            nonlocal sent
            remember(message)
            sent += 1
            if sent < 4:
                states[0] = ("acquired", "ghost", message.delivery_count())

        monkeypatch.setattr(worker._jobs, "remember", lost)
        for refused in range(1, 4):
            await asyncio.sleep(5)
            assert worker._tally.events["refused_acknowledgements"] == refused
            states[0] = ("available", "", states[0][2])
            fake.notify()
        await asyncio.sleep(5)
        assert fake.states("t") == {0: "acknowledged"}
        assert not worker._jobs._ended, "it is confirmed"
    assert begun == [b"v0"]
    assert "counts as done: its job succeeded here before" in caplog.text


@pytest.mark.rule("CL-126b")
@on_fake_cluster()
async def test_another_record_at_the_place_of_one_that_ended_well_is_run(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bytes] = []

    async def handler(value: bytes) -> None:
        begun.append(value)
        if len(begun) == 1:
            log = fake.log("t")
            log.batches.clear()
            log.end = 0
            log.states["g"].clear()
            produce(fake, 1, value=b"other")

    produce(fake, 1)
    async with working(fake, monkeypatch, handler):
        await asyncio.sleep(20)
        assert begun == [b"v0", b"other0"]


@pytest.mark.rule("CL-126b")
@on_fake_cluster()
async def test_what_is_remembered_of_ended_jobs_has_a_bound(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(_: bytes) -> None: ...

    monkeypatch.setattr("sharegroups.worker.runner.REMEMBERED_JOBS_MAX", 5)
    produce(fake, 30)
    async with working(fake, monkeypatch, handler) as worker:
        monkeypatch.setattr(worker._jobs, "confirmed", lambda partition, offsets: None)
        await asyncio.sleep(3)
        assert [place[2] for place in worker._jobs._ended] == [25, 26, 27, 28, 29]
    assert REMEMBERED_JOBS_MAX == 10_000
