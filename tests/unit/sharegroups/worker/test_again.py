"""A record is delivered again while its job runs here: no second handler starts, the running job's outcome applies to
the new delivery, and that delivery does not count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kip932.ids import ACK_RELEASE
from sharegroups.aio import ShareConsumer
from sharegroups.worker import Retry, current_job, runner
from sharegroups.worker.checks import GroupLimits
from sharegroups.worker.core.tally import Tally
from sharegroups.worker.job import JobSpec
from sharegroups.worker.runner import Runner
from tests.support.fake_cluster import log
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce


@asynccontextmanager
async def working(
    fake: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    handler: Callable[[bytes], Awaitable[None]],
    stopped_after: float | None = None,
) -> AsyncIterator[Runner]:
    """A worker of topic t, which is stopped at the end."""
    monkeypatch.setattr(runner, "ShareConsumer", partial(ShareConsumer, transport=fake.transport()))
    spec = JobSpec("t", handler, None, stopped_after, Retry(backoff=3600), {}, is_async=True, in_process=False)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    worker = Runner(
        settings,
        {"t": spec},
        concurrency=4,
        prefetch=10,
        grace=20.0,
        limits=GroupLimits(5),
        tally=Tally(["t"]),
    )
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(2)
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def lost_and_delivered_again(fake: FakeCluster, count: int) -> None:
    """End the leader's sessions, as a restart does; afterwards the worker holds record 0 with this delivery count."""
    fake.drop_streams(0)
    await asyncio.sleep(5)
    assert (fake.states("t"), fake.log("t").states["g"][0][2]) == ({0: "acquired"}, count)


@pytest.mark.rule("CL-126a")
@on_fake_cluster()
async def test_a_job_that_runs_is_not_begun_again_and_its_end_counts_for_the_last_delivery(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[bytes] = []
    lost: list[bool] = []

    async def handler(value: bytes) -> None:
        begun.append(value)
        await asyncio.sleep(100)
        lost.append(current_job().lost)

    produce(fake, 1)
    async with working(fake, monkeypatch, handler) as worker:
        await lost_and_delivered_again(fake, 1)
        assert worker._in_hand == 1
        await lost_and_delivered_again(fake, 1)
        await asyncio.sleep(80)  # longer than two locks: the lock of the last delivery is kept alive
        assert fake.states("t") == {0: "acquired"}
        await asyncio.sleep(20)
        assert fake.states("t") == {0: "acknowledged"}
        assert fake.log("t").states["g"][0][2] == 1
        assert not worker._jobs._by_place
        assert worker._tally.outcomes["t", "accepted"] == 1
        assert worker._tally.events["refused_acknowledgements"] == 0
        assert not worker._consumer._engine.ledger.holds_any, "earlier deliveries must leave nothing behind"
    assert (begun, lost) == ([b"v0"], [False])
    assert caplog.text.count("t-0@0 was redelivered (delivery ") == 2


@pytest.mark.rule("CL-126a")
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_failure_or_a_time_out_counts_for_the_last_delivery_too(
    timeout: float | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @on_fake_cluster()
    async def story(fake: FakeCluster) -> None:
        async def handler(_: bytes) -> None:
            await asyncio.sleep(30 if timeout is None else 1000)
            raise OSError

        produce(fake, 1)
        async with working(fake, monkeypatch, handler, timeout):
            await lost_and_delivered_again(fake, 1)
            await asyncio.sleep(30)
            assert fake.states("t") == {0: "delayed"}, "its back-off is an hour"
        assert "delivery 1 of 5, failed" in caplog.text

    story()


@pytest.mark.rule("CL-126a")
@on_fake_cluster()
async def test_a_job_that_loses_its_lock_more_often_than_the_group_delivers_is_not_given_up(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts: list[int] = []

    async def handler(_: bytes) -> None:
        await asyncio.sleep(60)
        counts.append(current_job().delivery_count)
        raise OSError

    produce(fake, 1)
    async with working(fake, monkeypatch, handler) as worker:
        for _ in range(8):
            await lost_and_delivered_again(fake, 1)
        await asyncio.sleep(30)
        assert worker._tally.outcomes["t", "archived"] == 0
        assert fake.states("t") == {0: "delayed"}
    assert counts == [1]
    assert "delivery 1 of 5, failed" in caplog.text


@pytest.mark.rule("CL-126a")
@on_fake_cluster()
async def test_a_leader_that_takes_nothing_back_by_renewal_keeps_the_lock_and_counts(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_: bytes) -> None:
        await asyncio.sleep(100)
        raise OSError

    produce(fake, 1)
    monkeypatch.setattr(log, "TAKES_BACK", (ACK_RELEASE,))  # as before a RENEW could
    async with working(fake, monkeypatch, handler):
        await lost_and_delivered_again(fake, 2)
        await asyncio.sleep(80)  # longer than two locks
        assert fake.states("t") == {0: "acquired"}
        await asyncio.sleep(30)
        assert fake.states("t") == {0: "delayed"}
    assert "delivery 2 of 5, failed" in caplog.text
    assert " is lost" not in caplog.text.split("was redelivered", 1)[1]


@pytest.mark.rule("CL-126a")
@on_fake_cluster()
async def test_it_ends_within_the_grace_of_a_stop_and_is_done_once(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bytes] = []

    async def handler(value: bytes) -> None:
        begun.append(value)
        await asyncio.sleep(20)

    produce(fake, 1)
    async with working(fake, monkeypatch, handler) as worker:
        await lost_and_delivered_again(fake, 1)
        worker.stop()
    assert begun == [b"v0"]
    assert fake.states("t") == {0: "acknowledged"}


@pytest.mark.rule("CL-126a")
@on_fake_cluster()
async def test_after_its_end_a_record_that_comes_again_is_a_job_of_its_own(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    async def handler(value: bytes) -> None:
        begun.append((value, current_job().delivery_count))

    produce(fake, 1)
    async with working(fake, monkeypatch, handler):
        fake.log("t").states["g"][0] = ("available", "", 1)  # an operator's reset
        fake.notify()
        await asyncio.sleep(2)
    assert begun == [(b"v0", 1), (b"v0", 2)]


@on_fake_cluster()
async def test_another_record_at_the_same_offset_is_no_delivery_of_the_job(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bytes] = []

    async def handler(value: bytes) -> None:
        begun.append(value)
        await asyncio.sleep(30)

    produce(fake, 1)
    async with working(fake, monkeypatch, handler):
        log = fake.log("t")
        log.batches.clear()
        log.end = 0
        log.states["g"].clear()
        produce(fake, 1, value=b"other")
        fake.drop_streams(0)
        await asyncio.sleep(5)
        assert begun == [b"v0", b"other0"]
