"""A consumer logs a missing cluster or topic once per cause, with or without configured logging."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from kip932.errors import (
    CoordinatorLoadInProgressError,
    InvalidTopicError,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import consumer, play, produce
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.test_producer import producer


def _reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    others = "sharegroups.consuming.lock_watch"  # logs what became of the last poll's records
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING and one.name != others]


def test_a_topic_that_is_not_there_is_reported_once_within_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["nope"])
            assert not await c.poll(5)
            assert len(_reported(caplog)) == 1
            assert not await c.poll(300)

    play(story)
    assert len(_reported(caplog)) == 1
    assert "topic 'nope' does not exist in the cluster at node0:9000" in _reported(caplog)[0]


def test_a_producer_to_a_topic_that_is_not_there_says_so_once_while_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with producer(fake) as p:
            waiting = [asyncio.create_task(p.send("nope", b"x")) for _ in range(20)]
            await asyncio.sleep(5)
            assert len(_reported(caplog)) == 1
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(each) for each in found} == {UnknownTopicOrPartitionError}

    play(story)
    (reported,) = _reported(caplog)
    assert "topic 'nope' does not exist in the cluster at node0:9000" in reported
    assert "It waits for max.block.ms, 60000 ms." in reported


@pytest.mark.rule("CL-93")
def test_a_name_that_no_topic_can_have_is_refused_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with producer(fake) as p:
            with pytest.raises(InvalidTopicError, match="topic name 'my orders' cannot be: a name has 1 to 249 of a-z"):
                await p.send("my orders", b"x")
        produce(fake)
        async with consumer(fake) as c:
            c.subscribe(["my orders", "t"])
            with pytest.raises(InvalidTopicError, match="topic name 'my orders' cannot be"):
                await c.poll(60)
            assert now_s() < 0.1
            assert (await c.poll(60)).count() == 1, "raised once, and the other topics go on"
            c.subscribe(["t", "..", "x" * 250])
            for _ in range(2):
                with pytest.raises(InvalidTopicError, match=r"'\.\.' cannot be|'x+' cannot be"):
                    await c.poll(60)
            assert not await c.poll(0)
            c.subscribe(["my orders"])
            with pytest.raises(InvalidTopicError, match="'my orders'"):
                await c.poll(60)

    play(story)
    assert not _reported(caplog)


def test_a_producer_that_finds_its_topic_soon_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with producer(fake) as p:
            await p.send("t", b"x")
            await asyncio.sleep(5)

    play(story)
    assert not _reported(caplog)


def test_a_cluster_that_is_down_is_reported_and_another_cause_too(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        fake.network.stop("node0:9000")
        async with consumer(fake) as c:
            c.subscribe(["nope"])
            assert not await c.poll(5)
            assert len(_reported(caplog)) == 1
            assert not await c.poll(100)
            fake.serve(0)
            assert not await c.poll(100)

    play(story)
    down, lasts, unknown = _reported(caplog)
    assert down.startswith("no cluster answers at node0:9000 (")
    assert lasts.startswith("no cluster answers at node0:9000 (")
    assert " This has lasted for " in lasts
    assert "'nope' does not exist" in unknown


def test_an_outage_after_a_long_idle_time_is_reported_within_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert not await c.poll(301)
            fake.network.stop("node0:9000")
            assert not await c.poll(5)
            assert len(_reported(caplog)) == 1

    play(story)
    assert _reported(caplog)[0].startswith("no cluster answers at node0:9000 (")


def test_an_outage_that_is_soon_over_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert not await c.poll(301)
            fake.network.stop("node0:9000")
            assert not await c.poll(1)
            fake.serve(0)
            assert not await c.poll(60)

    play(story)
    assert not _reported(caplog)


@pytest.mark.rule("CL-91")
@pytest.mark.parametrize("has_partitions", [False, True])
def test_the_return_of_a_lost_cluster_is_reported_with_how_long_it_took(
    caplog: pytest.LogCaptureFixture, has_partitions: bool
) -> None:
    caplog.set_level(logging.INFO, "sharegroups.consuming.stall_watch")

    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert not await c.poll(5 if has_partitions else 0)
            for _ in range(2):
                fake.network.stop("node0:9000")
                assert not await c.poll(60)
                fake.serve(0)
                assert not await c.poll(5)

    play(story)
    lines = [record.getMessage() for record in caplog.records if record.name == "sharegroups.consuming.stall_watch"]
    assert [line.partition(" (")[0].partition(", ")[0] for line in lines] == [
        "no cluster answers at node0:9000", "the cluster at node0:9000 answers again"
    ] * 2  # fmt: skip
    assert all(re.search(r"again, \d+ s after the warning", line) for line in lines[1::2])


def test_a_partition_without_a_leader_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        topic_id, _ = fake.topics["t"]
        fake.leaders[TopicIdPartition(topic_id, 0)] = (-1, -1)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert not await c.poll(30)

    play(story)
    assert ["no live leader for partition 0." in line for line in _reported(caplog)] == [True]


@pytest.mark.rule("CL-91")
def test_a_group_that_no_coordinator_serves_is_reported_once_and_its_return_ends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        fake.errors["heartbeat"].extend([NotCoordinatorError.code] * 10_000)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert not await c.poll(5)
            assert len(_reported(caplog)) == 1
            assert not await c.poll(60)
            fake.errors["heartbeat"].clear()
            assert await c.poll(60)

    play(story)
    (reported,) = _reported(caplog)
    assert reported.startswith("no coordinator at node0:9000 serves group 'g' (This node is not the coordinator). ")
    assert "sharegroups state check" in reported


def test_a_member_with_partitions_is_not_said_to_lack_its_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    """It reads on from its leaders, so an absent coordinator is not why a poll returns nothing."""

    async def story(fake: FakeCluster) -> None:
        produce(fake)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert await c.poll(5)
            fake.errors["heartbeat"].extend([NotCoordinatorError.code] * 10_000)
            assert not await c.poll(20)
            produce(fake)
            assert await c.poll(5)
            fake.errors["heartbeat"].clear()

    play(story)
    assert not _reported(caplog)


def test_a_coordinator_that_loads_for_a_second_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        produce(fake)
        fake.errors["heartbeat"].extend([CoordinatorLoadInProgressError.code] * 2)
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert await c.poll(30)

    play(story)
    assert _reported(caplog) == []


def test_an_idle_consumer_of_a_sound_cluster_is_quiet_and_asks_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["t"])
            assert not await c.poll(10)
            asked = fake.metadata_requests
            assert not await c.poll(200)
            assert fake.metadata_requests == asked
            produce(fake)
            assert await c.poll(5)

    play(story)
    assert _reported(caplog) == []


def test_a_consumer_that_does_not_want_anything_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fake: FakeCluster) -> None:
        async with consumer(fake) as c:
            c.subscribe(["nope"])
            await c.poll(0)
            c.unsubscribe()
            await asyncio.sleep(60)

    play(story)
    assert _reported(caplog) == []
