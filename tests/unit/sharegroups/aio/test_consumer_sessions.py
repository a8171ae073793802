"""The share consumer and its leaders: share sessions, epochs, streams that end, leaders that move."""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import KafkaError, NetworkError, NotLeaderOrFollowerError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce


@pytest.mark.rule("CL-30", "PL-502a")
@pytest.mark.scenario("S-027")
@on_fake_cluster()
async def test_epochs_run_in_sending_order_and_the_session_id_is_echoed(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        for _ in range(3):
            produce(fake)
            await c.poll(5)
            await c.commit_sync()
        epochs = [r.share_session_epoch for r in fake.fetches]
        both = sorted(epochs + [r.share_session_epoch for r in fake.acknowledges])
        assert both == list(range(len(both)))
        assert epochs[0] == 0
        assert not fake.fetches[0].HasField("session_id")
        assert {r.session_id for r in fake.fetches[1:]} == {101}
    assert fake.acknowledges[-1].share_session_epoch == -1
    assert fake.sessions[0] == {}


@pytest.mark.rule("P-5", "CL-30")
@on_fake_cluster(nodes=2, partitions=2)
async def test_acknowledgements_do_not_wait_behind_a_parked_fetch(fake: FakeCluster) -> None:
    produce(fake, 1, partition=0)
    async with consumer(fake, **{"fetch.max.wait.ms": 60_000}) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        assert len(messages) == 1
        assert (await c.poll(0.1)).is_empty()  # accepted; both leaders' fetches are now parked
        produce(fake, 1, partition=1)
        messages = await c.poll(5)
        produce(fake, 1, partition=0)
        assert len(await c.poll(5)) == 1
        assert await c.commit_sync(1)
        assert set(fake.states("t", number=0).values()) == {"acknowledged"}


@pytest.mark.rule("CL-31")
@on_fake_cluster()
async def test_a_lost_session_is_opened_again_and_its_acknowledgements_fail_with_a_network_error(
    fake: FakeCluster,
) -> None:
    produce(fake)
    heard: list[KafkaError | None] = []
    async with consumer(fake) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
        c.subscribe(["t"])
        await c.poll(5)
        fake.errors["fetch_top"].append(122)
        again = await c.poll(5)
        assert [(m.offset(), m.delivery_count()) for m in again] == [(0, 2)]
        assert isinstance(heard[0], NetworkError)
        assert [r.share_session_epoch for r in fake.fetches][-1] == 0


@pytest.mark.rule("CL-33", "PL-524")
@on_fake_cluster()
async def test_the_end_of_the_stream_is_the_end_of_the_session(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(5)
        fake.drop_streams(0)
        (error,) = (await c.commit_sync()).values()
        assert isinstance(error, NetworkError)
        assert [m.delivery_count() for m in await c.poll(5)] == [2]


@pytest.mark.rule("CL-33", "CL-34")
@pytest.mark.scenario("S-025")
@on_fake_cluster(nodes=2)
async def test_a_moved_leader_is_followed_by_its_redirect_and_old_acknowledgements_fail(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message)
        await c.commit_sync()
        produce(fake)
        (message,) = await c.poll(5)
        fake.move_leader("t", 0, 1)
        produce(fake)
        c.acknowledge(message)
        messages = await c.poll(5)
        while messages.is_empty():
            messages = await c.poll(5)
        assert (messages[0].offset(), messages[0].delivery_count()) == (1, 2), "its lock went with the former leader"
        assert fake.sessions[1]
        for m in messages:
            c.acknowledge(m)


@pytest.mark.rule("CL-33")
@on_fake_cluster(nodes=2)
async def test_acknowledgements_after_a_move_fail_without_being_sent(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.move_leader("t", 0, 1)
        assert c._engine._runtime is not None
        await c._engine._runtime.cluster.wait_refreshed()
        c.acknowledge(message)
        (error,) = (await c.commit_sync()).values()
        assert isinstance(error, NotLeaderOrFollowerError)
        assert fake.acknowledges == []


@pytest.mark.rule("CL-36")
@on_fake_cluster(nodes=2, partitions=2)
async def test_record_limit_asks_one_leader_at_a_time(fake: FakeCluster) -> None:
    async with consumer(fake, **{"share.acquire.mode": "record_limit", "max.poll.records": 5}) as c:
        c.subscribe(["t"])
        produce(fake, 10, partition=0)
        produce(fake, 10, partition=1)
        for _ in range(4):
            assert len(await c.poll(5)) == 5
        assert {r.share_acquire_mode for r in fake.fetches} == {1}
        held = [s for number in (0, 1) for s in fake.states("t", number=number).values() if s == "acquired"]
        assert len(held) == 5


@pytest.mark.rule("CL-37")
@on_fake_cluster()
async def test_a_session_without_partitions_is_closed_once_its_acknowledgements_are_done(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(5)
        c.unsubscribe()
        assert list((await c.commit_sync()).values()) == [None]
        fake.add_topic("other")
        c.subscribe(["other"])
        await c.poll(5)
        assert -1 in [r.share_session_epoch for r in fake.acknowledges]


@pytest.mark.rule("PL-507", "CL-30")
@on_fake_cluster()
async def test_acknowledging_a_partition_taken_away_does_not_bring_it_back_into_the_session(fake: FakeCluster) -> None:
    fake.add_topic("u")
    produce(fake, topic="u")
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t", "u"])
        (message,) = await c.poll(5)
        c.acknowledge(message)
        assert (await c.poll(0.1)).is_empty()
        produce(fake, topic="u")
        (message,) = await c.poll(5)
        engine = c._engine
        assert engine._runtime is not None
        engine._runtime.fetcher.assign(frozenset({fake.partition("t")}))
        engine._runtime.fetcher.send_fetches(now_ms=10_000)
        await asyncio.sleep(1)  # the leader drops the partition from the session before its acknowledgement is sent
        produce(fake, topic="t")
        c.acknowledge(message)
        (other,) = await c.poll(5)
        c.acknowledge(other)
        assert set(fake.states("u").values()) == {"acknowledged"}
        last = [request for request in fake.fetches if request.forgotten_topics_data][-1]
        assert [topic.topic_id for topic in last.forgotten_topics_data] == [fake.topics["u"][0]]
        (session,) = fake.sessions[0].values()
        assert list(session.partitions) == [fake.partition("t")]
