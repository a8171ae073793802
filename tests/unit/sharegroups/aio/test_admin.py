"""The admin client's connections when it is closed, and its wait for leaders that are not known yet."""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from sharegroups import TopicPartition
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster, produce
from tests.support.virtual_time import now_s


@on_fake_cluster()
async def test_close_ends_the_connections_that_the_admin_made_and_no_others(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake.transport()
    closed: list[object] = []

    async def close() -> None:
        closed.append(made)

    monkeypatch.setattr(made, "close", close)
    monkeypatch.setattr("sharegroups.aio.admin.transport_for", lambda _: made)
    for given in (made, None):
        async with Admin({"bootstrap.servers": fake.bootstrap}, transport=given) as admin:
            assert "t" in await admin.list_topics()
        assert closed == ([] if given else [made])


@pytest.mark.rule("CL-155")
@on_fake_cluster()
async def test_a_leader_that_is_not_known_yet_is_waited_for(fake: FakeCluster) -> None:
    produce(fake, 2)
    place, leaders = fake.partition("t"), dict(fake.leaders)
    fake.leaders[place] = (-1, 2)
    asyncio.get_running_loop().call_later(0.5, fake.leaders.update, leaders)
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        assert await admin.list_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 2}
        assert 0.5 < now_s() < 1


@pytest.mark.rule("CL-155")
@on_fake_cluster(partitions=2)
async def test_one_that_does_not_come_is_the_result_of_its_partition(fake: FakeCluster) -> None:
    """The other partitions get their results. A partition that does not exist is not waited for."""
    fake.leaders[fake.partition("t")] = (-1, 2)
    places = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("nope", 0), TopicPartition("t", 99)]
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        results = await admin.list_offsets(places[2:])
        assert now_s() < 0.1
        results |= await admin.list_offsets(places[:2])
        assert 1 < now_s() < 2.1
    kinds = [type(results[place]) for place in places]
    assert kinds == [LeaderNotAvailableError, int, UnknownTopicOrPartitionError, UnknownTopicOrPartitionError]
