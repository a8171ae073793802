"""A consumer that lacks or loses a permission: it retries after a back-off, reports each change once, and continues by
itself once the permission is granted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kip932.rpc.transport import TransportStatus
from sharegroups.aio import ShareConsumer
from sharegroups.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.support.virtual_time import now_s
from tests.unit.sharegroups.aio.hooked import HookedTransport

READ_T, DESCRIBE_T, READ_G, DESCRIBE_G = (
    f"{operation} on {resource}" for resource in ("topic 't'", "group 'g'") for operation in ("READ", "DESCRIBE")
)


async def polls(c: ShareConsumer, seconds: float) -> tuple[list[str], list[KafkaError]]:
    """Poll for a few seconds. Returns the values of the records and the errors."""
    values: list[str] = []
    errors: list[KafkaError] = []
    until = now_s() + seconds
    while (left := until - now_s()) > 0:
        try:
            values += [f"{one.topic()}:{(one.value() or b'').decode()}" for one in await c.poll(left)]
        except KafkaError as error:
            errors.append(error)
            await asyncio.sleep(
                0.001
            )  # so that a consumer that keeps raising immediately fails the test instead of hanging it
    return values, errors


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_a_topic_that_may_not_be_read_any_more_is_tried_slowly_reported_once_and_read_again(
    fake: FakeCluster,
) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        assert await polls(c, 2) == ([], [])
        produce(fake)
        assert await polls(c, 1) == (["t:v0"], [])
        fake.denied = {READ_T, DESCRIBE_T}
        _, errors = await polls(c, 1)
        assert [type(error) for error in errors] == [TopicAuthorizationFailedError]
        fake.fetches.clear()
        produce(fake)
        assert await polls(c, 60) == ([], [])
        assert len(fake.fetches) + fake.metadata_requests <= 150, "the consumer must retry about once a second"
        fake.denied = set()
        began = now_s()
        assert [message.value() for message in await c.poll(10)] == [b"v0"]
        assert now_s() - began <= 1.2
        assert len(fake.members) == 1
        fake.denied = {READ_T}
        _, again = await polls(c, 20)
        assert [type(error) for error in again] == [TopicAuthorizationFailedError], "each change must be reported once"


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_the_error_has_the_servers_text_and_says_what_to_ask_for(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(2)
        fake.denied = {READ_T}
        _, (error,) = await polls(c, 5)
    assert type(error) is TopicAuthorizationFailedError
    assert error.message == (
        "User:alice has no right to READ on topic 't'. An administrator can allow it: "
        "sharegroups acls add --allow-principal User:NAME --consumer --topic t --group g --command-config FILE"
    )


@pytest.mark.rule("CL-143")
@on_fake_cluster(partitions=3)
async def test_the_other_topics_of_a_leader_go_on_undisturbed(fake: FakeCluster) -> None:
    fake.add_topic("u")
    async with consumer(fake) as c:
        c.subscribe(["t", "u"])
        await polls(c, 2)
        fake.denied = {READ_T}
        _, errors = await polls(c, 2)
        assert [type(error) for error in errors] == [TopicAuthorizationFailedError], "one report for all partitions"
        fake.fetches.clear()
        for _ in range(20):
            await asyncio.sleep(0)
            polling = asyncio.create_task(c.poll(5))
            await asyncio.sleep(0.3)
            produce(fake, topic="u")
            began = now_s()
            assert [message.topic() for message in await polling] == ["u"]
            assert now_s() - began < 0.01, "a refused topic must not delay fetches of another one from the same leader"
        assert len(fake.fetches) < 60
        fake.denied = set()
        produce(fake, partition=2)
        assert await polls(c, 3) == (["t:v0"], [])


@pytest.mark.rule("CL-143")
@on_fake_cluster(nodes=2, partitions=2)
async def test_a_topic_that_two_leaders_refuse_is_reported_once(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await polls(c, 2)
        fake.denied = {READ_T}
        _, errors = await polls(c, 10)
        assert len(errors) == 1
        fake.denied = set()
        produce(fake, partition=0)
        produce(fake, partition=1, value=b"w")
        values, errors = await polls(c, 5)
        assert (sorted(values), errors) == (["t:v0", "t:w0"], [])


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_a_group_that_may_not_be_read_any_more_is_reported_once_and_its_session_goes_on(
    fake: FakeCluster,
) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await polls(c, 2)
        (session,) = fake.sessions[0].values()
        fake.denied = {READ_G, DESCRIBE_G}
        fake.heartbeats.clear()
        fake.fetches.clear()
        _, errors = await polls(c, 40)
        assert [type(error) for error in errors] == [GroupAuthorizationFailedError], (
            "one report for fetches and heartbeats"
        )
        assert (
            "User:alice has no right to READ on group 'g'. An administrator can allow it: sharegroups acls add"
            in str(errors[0])
        )
        assert len(fake.fetches) <= 60
        assert len(fake.heartbeats) <= 60
        fake.denied = set()
        produce(fake)
        assert await polls(c, 2) == (["t:v0"], [])
        assert list(fake.sessions[0].values()) == [session], "the session must be neither lost nor replaced"
        assert len(fake.members) == 1


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_the_epoch_stays_when_a_fetch_and_an_acknowledgement_in_flight_are_both_refused(
    fake: FakeCluster,
) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        (session,) = fake.sessions[0].values()
        fake.denied = {READ_G}
        c.acknowledge(message)
        c.commit_async()
        _, errors = await polls(c, 3)
        assert len(errors) == 1
        fake.denied = set()
        produce(fake)
        assert len(await c.poll(5)) == 1
        assert list(fake.sessions[0].values()) == [session]


@pytest.mark.rule("CL-143")
@pytest.mark.parametrize(
    ("denied", "kind"),
    [
        ({READ_G}, GroupAuthorizationFailedError),
        ({READ_G, DESCRIBE_G}, GroupAuthorizationFailedError),
        ({DESCRIBE_T, READ_T}, TopicAuthorizationFailedError),
        ({READ_T}, TopicAuthorizationFailedError),
        ({DESCRIBE_T, READ_T, READ_G}, GroupAuthorizationFailedError),
    ],
)
@on_fake_cluster()
async def test_a_consumer_that_never_had_the_right_reports_it_once_and_joins_when_it_comes(
    fake: FakeCluster, denied: set[str], kind: type[KafkaError]
) -> None:
    produce(fake)
    fake.denied = set(denied)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        values, errors = await polls(c, 100)
        assert (values, [type(error) for error in errors]) == ([], [kind])
        assert "User:alice has no right to" in str(errors[0])
        assert len(fake.heartbeats) <= 130
        assert len(fake.fetches) <= 130
        assert fake.metadata_requests <= 130
        fake.denied = set()
        assert await polls(c, 3) == (["t:v0"], [])


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_a_live_member_whose_heartbeats_are_refused_keeps_its_epoch_and_its_partitions(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await polls(c, 2)
        (epoch,) = fake.members.values()
        fake.denied = {READ_G}
        await polls(c, 20)
        fake.heartbeats.clear()
        fake.denied = set()
        await polls(c, 8)
        assert {one.member_epoch for one in fake.heartbeats} == {epoch}
        assert len(fake.heartbeats) <= 4, "after that, one heartbeat per interval"


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_a_member_that_was_removed_while_it_lacked_the_right_joins_again(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await polls(c, 2)
        fake.denied = {READ_G}
        await polls(c, 20)
        fake.members.clear()
        fake.denied = set()
        produce(fake)
        values, errors = await polls(c, 12)
        assert (values, errors) == (["t:v0"], [])
        assert len(fake.members) == 1


@pytest.mark.rule("CL-143")
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("denied", [{READ_G, DESCRIBE_G}, {READ_T, DESCRIBE_T}])
@on_fake_cluster()
async def test_close_ends_at_once_and_leaves_nothing(
    fake: FakeCluster, joined: bool, denied: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sharegroups")
    c = consumer(fake)
    c.subscribe(["t"])
    if joined:
        await c.poll(2)
    fake.denied = set(denied)
    await polls(c, 10)
    began = now_s()
    await c.close()
    assert now_s() - began < 0.1
    assert [text for text in caplog.messages if "again, and continues" in text] == []
    asked = len(fake.heartbeats), len(fake.fetches), fake.metadata_requests
    await asyncio.sleep(60)
    assert (len(fake.heartbeats), len(fake.fetches), fake.metadata_requests) == asked
    assert fake.sessions[0] == {}
    assert {task.get_name() for task in asyncio.all_tasks()} & {"heartbeats", "metadata", "watch"} == set()


@pytest.mark.rule("CL-143")
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("right", "kind"), [(READ_T, TopicAuthorizationFailedError), (READ_G, GroupAuthorizationFailedError)]
)
@on_fake_cluster()
async def test_refused_acknowledgements_are_reported_as_others_are_and_not_sent_again(
    fake: FakeCluster, right: str, kind: type[KafkaError], alone: bool
) -> None:
    produce(fake)
    heard: list[type[KafkaError] | None] = []
    async with consumer(fake, **EXPLICIT) as c:
        c.set_acknowledgement_commit_callback(lambda _, error: heard.append(None if error is None else type(error)))
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.denied = {right}
        c.acknowledge(message)
        if alone:
            (outcome,) = (await c.commit_sync()).values()
            assert type(outcome) is kind
        await polls(c, 20)
        assert heard == [kind]
        requests: list[Any] = [*fake.acknowledges, *fake.fetches]
        sent = [
            batch
            for request in requests
            for topic in request.topics
            for part in topic.partitions
            for batch in part.acknowledgement_batches
        ]
        assert len(sent) == 1


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_a_lock_whose_renewal_is_refused_for_a_missing_right_is_lost(fake: FakeCluster) -> None:
    produce(fake)
    fake.lock_ms = 3_000
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        async with c.keep_alive(message) as kept:
            fake.denied = {READ_T}
            await polls(c, 20)
            assert kept.lost
        renewals = [request for request in fake.acknowledges if request.is_renew_ack]
        assert len(renewals) == 1


@pytest.mark.rule("CL-143", "CL-16")
@on_fake_cluster()
async def test_a_gateway_that_denies_the_heartbeat_is_tried_again_like_a_coordinator_that_does(
    fake: FakeCluster,
) -> None:
    transport = HookedTransport(fake)
    transport.instead["ShareGroupHeartbeat"].extend([TransportStatus.PERMISSION_DENIED] * 5)
    produce(fake)
    c = ShareConsumer({"bootstrap.servers": fake.bootstrap, "group.id": "g"}, transport=transport)
    async with c:
        c.subscribe(["t"])
        values, errors = await polls(c, 10)
    assert (values, [type(error) for error in errors]) == (["t:v0"], [GroupAuthorizationFailedError])


@pytest.mark.rule("CL-143")
@on_fake_cluster()
async def test_a_topic_that_may_be_read_but_not_described_is_reported_too(fake: FakeCluster) -> None:
    fake.add_topic("u")
    async with consumer(fake) as c:
        c.subscribe(["t", "u"])
        await polls(c, 2)
        fake.denied = {DESCRIBE_T}
        fake.move_leader("u", 0, 0)  # the client requests the metadata again
        c.subscribe(["t", "u", "w"])
        fake.add_topic("w")
        _, errors = await polls(c, 10)
        assert {type(error) for error in errors} == {TopicAuthorizationFailedError}
        assert len(errors) <= 2, "one for the topic, and one for the heartbeat, without which nothing is received"
