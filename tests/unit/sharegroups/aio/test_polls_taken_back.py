"""The effects of an interrupted poll, a lost session and a poll acknowledged in parts on a consumer that fetches
ahead."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sharegroups.aio import ShareConsumer
from sharegroups.consuming.fetcher import UNPOLLED_S
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster
from tests.unit.sharegroups.aio.test_fetching_ahead import ahead, backlog


async def quick(c: ShareConsumer) -> None:
    for message in await c.poll(5):
        c.acknowledge(message)


@on_fake_cluster()
async def test_an_interrupted_poll_is_no_poll_of_a_slow_application(fake: FakeCluster) -> None:
    backlog(fake, 20_000)
    async with consumer(fake) as c:
        taken = await ahead(c)
        c._engine.take_back()
        await asyncio.sleep(0.5)
        again = await c.poll(5)
        assert [message.offset() for message in again] == [message.offset() for message in taken]
        assert c._engine._member.hold_ms < 100
        for _ in range(4):
            await c.poll(5)
        assert fake.fetches[-1].max_records == 2_000


@on_fake_cluster()
async def test_what_an_interrupted_poll_has_put_back_is_others_after_a_second(fake: FakeCluster) -> None:
    backlog(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for _ in range(4):
            await quick(c)
        last = {message.offset() for message in await c.poll(5)}
        await asyncio.sleep(UNPOLLED_S + 0.05)
        c._engine.take_back()
        await asyncio.sleep(UNPOLLED_S + 0.1)
        assert {fake.states("t")[offset] for offset in last} == {"available"}


@on_fake_cluster()
async def test_what_the_leader_has_released_is_not_said_to_be_released(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sharegroups")
    backlog(fake, 4_000)
    async with consumer(fake) as c:
        await ahead(c)
        fake.drop_streams(0)
        await asyncio.sleep(UNPOLLED_S + 0.1)
        assert "fetched ahead are released" not in caplog.text


@on_fake_cluster()
async def test_what_the_leader_has_released_is_not_handed_out(fake: FakeCluster) -> None:
    backlog(fake, 4_000)
    async with consumer(fake) as c:
        await ahead(c)
        fake.drop_streams(0)
        await asyncio.sleep(0.1)
        assert {message.delivery_count() for message in await c.poll(5)} == {2}


@on_fake_cluster()
async def test_who_was_slow_is_so_though_it_acknowledged_in_parts(fake: FakeCluster) -> None:
    backlog(fake, 20_000)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        for _ in range(3):
            await quick(c)
        kept, *others = await c.poll(5)
        async with c.keep_alive(kept):
            for message in others:
                c.acknowledge(message)
            messages = list(await c.poll(5))
            for message in messages[:100]:
                c.acknowledge(message)
            await c.commit_sync()
            await asyncio.sleep(5)
            for message in messages[100:]:
                c.acknowledge(message)
            await quick(c)
            c.acknowledge(kept)
        asked = len(fake.fetches)
        for _ in range(8):
            await quick(c)
        assert {request.max_records for request in fake.fetches[asked:]} == {500}
