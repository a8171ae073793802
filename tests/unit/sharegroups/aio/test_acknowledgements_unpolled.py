"""Acknowledgements that no poll sends: those of a fetch refused for lack of room, and of a consumer that closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import KafkaError, ThrottlingQuotaExceededError
from sharegroups.errors import IllegalStateError, WakeupError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.slow_answers import acknowledging_within
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.unit.sharegroups.aio.test_fetching_ahead import acknowledged, ahead, backlog


@pytest.mark.rule("CL-87")
@on_fake_cluster()
async def test_acknowledgements_of_a_fetch_that_found_no_room_go_again_though_the_application_does_not_poll(
    fake: FakeCluster,
) -> None:
    backlog(fake)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(5)
        fake.errors["fetch_top"].append(ThrottlingQuotaExceededError.code)
        assert not await c.poll(0)
        await asyncio.sleep(2)
        assert acknowledged(fake.fetches[-1]) == [(0, 499)], "it was refused"
        assert {fake.states("t")[offset] for offset in range(500)} == {"acknowledged"}
        assert acknowledged(fake.acknowledges[-1]) == [(0, 499)]


@on_fake_cluster()
async def test_acknowledgements_are_sent_by_the_poll_that_says_that_nothing_is_subscribed(fake: FakeCluster) -> None:
    backlog(fake, 250)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 250
        c.unsubscribe()
        with pytest.raises(IllegalStateError, match="not subscribed"):
            await c.poll(5)
        await asyncio.sleep(0.1)
        assert set(fake.states("t").values()) == {"acknowledged"}


@on_fake_cluster()
async def test_acknowledgements_are_sent_by_a_poll_that_a_wakeup_of_another_thread_ends(fake: FakeCluster) -> None:
    backlog(fake, 250)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 250
        c._engine.wakeup()
        with pytest.raises(WakeupError):
            await c._engine.poll(5)  # what the blocking consumer calls after it has checked for a wakeup
        await asyncio.sleep(0.1)
        assert set(fake.states("t").values()) == {"acknowledged"}


@on_fake_cluster()
async def test_acknowledgements_are_sent_before_a_callback_that_may_take_long_or_raise(fake: FakeCluster) -> None:
    backlog(fake, 500)
    async with consumer(fake, **{"max.poll.records": 250}) as c:
        c.set_acknowledgement_commit_callback(lambda *_: None)
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 250
        assert len(await c.poll(5)) == 250
        await asyncio.sleep(0.1)
        assert c._engine.ledger.has_results
        assert await c._engine.poll(5) is None  # as above: these results arrived after it ran the callback
        await asyncio.sleep(0.1)
        assert set(fake.states("t").values()) == {"acknowledged"}


@pytest.mark.rule("CL-28")
@on_fake_cluster(kind=acknowledging_within(0.005))
async def test_close_waits_for_acknowledgements_that_were_sent_while_it_waited_for_room(fake: FakeCluster) -> None:
    backlog(fake)
    reported: list[KafkaError | None] = []
    c = consumer(fake)
    await ahead(c)
    c.set_acknowledgement_commit_callback(lambda _, error: reported.append(error))
    await c.poll(5)
    assert c._engine._runtime is not None
    (session,) = c._engine._runtime.fetcher._sessions.values()
    session.link.note_throttle(2_000)
    await asyncio.sleep(0.0007)
    await c.close(10)
    assert reported == [None]
    assert {fake.states("t")[offset] for offset in range(500, 1_000)} == {"acknowledged"}


@pytest.mark.rule("CL-28")
@pytest.mark.parametrize("config", [{}, EXPLICIT])
@on_fake_cluster()
async def test_a_consumer_that_closes_with_unaccepted_records_says_which(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture, config: dict[str, Any]
) -> None:
    produce(fake, 20)
    async with consumer(fake, **config, **{"share.acquire.mode": "batch_optimized"}) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 20
    said = "group g: the consumer is closed with 20 records of the last poll that were not accepted, the first t-0 "
    logged = [record.getMessage().partition("offset 0: they are delivered again.")[0] for record in caplog.records]
    assert logged == ([] if config else [said])
    assert set(fake.states("t").values()) == {"available"}
