"""A partition that its leader refuses to fetch from: the consumer logs it, and logs when it is over."""

from __future__ import annotations

import logging

import pytest

from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumer, on_fake_cluster, produce

_COORDINATOR_NOT_AVAILABLE, _NOT_LEADER = 15, 6


@pytest.mark.rule("CL-91")
@pytest.mark.parametrize("code", [_COORDINATOR_NOT_AVAILABLE, _NOT_LEADER])
@on_fake_cluster()
async def test_a_refusal_that_lasts_is_reported_and_its_end_too(
    fake: FakeCluster, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    def reported() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(2)
        fake.errors["fetch"].extend([code] * 1_000)
        produce(fake)
        assert not await c.poll(4)
        assert reported() == []
        assert not await c.poll(20)
        (line,) = reported()
        assert line.startswith("t-0 has given group 'g' no records for ")
        assert {15: "COORDINATOR_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER"}[code] in line
        assert not await c.poll(301)
        assert len(reported()) == 2, "and again after five minutes"
        fake.errors["fetch"].clear()
        assert len(await c.poll(10)) == 1
        assert reported()[-1].startswith("t-0 serves group 'g' again, after ")
        assert len(reported()) == 3


@on_fake_cluster()
async def test_a_refusal_that_passes_is_not_reported(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(2)
        fake.errors["fetch"].extend([_COORDINATOR_NOT_AVAILABLE] * 3)
        produce(fake)
        assert len(await c.poll(10)) == 1
        await c.commit_sync()
    assert not caplog.records
