"""A consumer that its group has removed: the epoch in its requests, a leader's refusal, and the log (CL-38)."""

from __future__ import annotations

import logging

import pytest

from kip932.errors import FencedMemberEpochError, NetworkError, UnknownMemberIdError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce

LOGGER = "sharegroups.consuming.heartbeats"


@pytest.mark.rule("CL-38")
@on_fake_cluster(partitions=2)
async def test_every_fetch_names_the_member_epoch_of_the_assignment_or_a_later_one(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        produce(fake)
        await c.poll(5)
        (member,) = fake.members
        first = fake.members[member]
        assert {request.member_epoch for request in fake.fetches} == {first}
        fake.members[member] = first + 3  # as if after a rebalance that leaves its partitions unchanged
        fake.errors["heartbeat"].append(FencedMemberEpochError.code)
        await c.poll(6)
        sent = len(fake.fetches)
        produce(fake)
        await c.poll(5)
        assert {request.member_epoch for request in fake.fetches[sent:]} == {first + 3}


@pytest.mark.rule("CL-38")
@on_fake_cluster()
async def test_a_leader_that_does_not_know_the_member_is_asked_again_and_its_records_are_lost(
    fake: FakeCluster,
) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message)
        fake.errors["fetch_top"].extend([UnknownMemberIdError.code] * 3)
        outcomes: list[object] = []
        c.set_acknowledgement_commit_callback(lambda _, error: outcomes.append(error))
        again = await c.poll(5)
        assert [(each.offset(), each.delivery_count()) for each in again] == [(0, 2)], "and nothing is raised"
        assert [type(error) for error in outcomes] == [NetworkError]
        assert [request.share_session_epoch for request in fake.fetches[-3:]] == [0, 0, 0]


@pytest.mark.rule("CL-38")
@on_fake_cluster()
async def test_a_consumer_that_was_removed_says_so_once_and_joins_again(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(1)
        with caplog.at_level(logging.WARNING, LOGGER):
            fake.errors["heartbeat"].append(UnknownMemberIdError.code)
            await c.poll(12)
            (said,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
        assert said.startswith("group 'g' has removed this consumer (UNKNOWN_MEMBER_ID: ")
        assert "blocked the event loop" in said
        produce(fake)
        assert len(await c.poll(5)) == 1
