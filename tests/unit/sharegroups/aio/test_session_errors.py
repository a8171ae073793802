"""Errors that end a share session or move a partition: the fate of acknowledgements, and the next request."""

from __future__ import annotations

import asyncio

import pytest

from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import KafkaError, NetworkError, ShareSessionLimitReachedError
from kip932.rpc.transport import TransportStatus
from sharegroups.aio import ShareConsumer
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.silence import SilentTransport
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.unit.sharegroups.aio.hooked import HookedTransport

_NOT_FOUND, _WRONG_EPOCH, _LIMIT = map(ErrorCode.ValueType, (122, 123, 133))
GONE = [(_NOT_FOUND, NetworkError), (_WRONG_EPOCH, NetworkError), (_LIMIT, ShareSessionLimitReachedError)]


@pytest.mark.rule("CL-30")
@on_fake_cluster(nodes=3, partitions=4)
async def test_each_leader_of_assigned_partitions_has_one_session_with_all_of_them(fake: FakeCluster) -> None:
    for number in range(4):
        fake.move_leader("t", number, number % 2)
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(2)
        held = {node: [list(session.partitions) for session in fake.sessions[node].values()] for node in fake.nodes}
        assert held == {
            0: [[fake.partition("t", 0), fake.partition("t", 2)]],
            1: [[fake.partition("t", 1), fake.partition("t", 3)]],
            2: [],
        }
        assert [request.share_session_epoch for request in fake.fetches].count(0) == 2


@pytest.mark.rule("CL-30")
@on_fake_cluster()
async def test_one_fetch_and_one_acknowledge_are_in_flight_at_most(fake: FakeCluster) -> None:
    produce(fake, 3)
    transport = SilentTransport(fake.network)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g", "share.acquire.mode": "batch_optimized"}
    async with ShareConsumer({**settings, **EXPLICIT}, transport=transport) as c:
        c.subscribe(["t"])
        first, second, third = await c.poll(5)
        transport.slow.add(fake.bootstrap)
        fetches = len(fake.fetches)
        for message in (first, second, third):
            c.acknowledge(message)
            c.commit_async()
            await asyncio.sleep(0.1)
        assert len(fake.acknowledges) == 1
        for _ in range(3):
            await c.poll(0.1)
        assert len(fake.fetches) == fetches + 1
        assert len(fake.acknowledges) == 1
        await transport.speak(fake.bootstrap)
        await asyncio.sleep(1)
        assert set(fake.states("t").values()) == {"acknowledged"}


@pytest.mark.rule("CL-31")
@pytest.mark.parametrize(("code", "kind"), GONE)
@pytest.mark.parametrize("carrier", ["fetch_top", "acknowledge_top"])
@on_fake_cluster(partitions=2)
async def test_a_session_that_is_gone_is_opened_with_everything_and_fails_what_its_request_carried(
    fake: FakeCluster, code: ErrorCode.ValueType, kind: type[KafkaError], carrier: str
) -> None:
    for number in (0, 1):
        produce(fake, 1, partition=number)
    heard: list[KafkaError | None] = []
    async with consumer(fake) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 2
        fetches = len(fake.fetches)
        fake.errors[carrier].append(code)
        if carrier == "acknowledge_top":
            assert {type(error) for error in (await c.commit_sync()).values()} == {kind}
        await c.poll(1)
        await c.poll(0)
        assert {type(error) for error in heard[:2]} == {kind}
        reopened = next(request for request in fake.fetches[fetches:] if request.share_session_epoch == 0)
        assert [part.partition_index for part in reopened.topics[0].partitions] == [0, 1]


@pytest.mark.rule("CL-31")
@on_fake_cluster()
async def test_after_another_error_of_a_whole_request_the_epoch_goes_on(fake: FakeCluster) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(2)
        fetches = len(fake.fetches)
        fake.errors["fetch_top"].append(ErrorCode.ValueType(7))  # REQUEST_TIMED_OUT
        await c.poll(2)
        refused, following = fake.fetches[fetches : fetches + 2]
        assert refused.share_session_epoch > 0
        assert following.share_session_epoch == refused.share_session_epoch + 1


@pytest.mark.rule("CL-32")
@pytest.mark.parametrize("by", ["poll", "commit"])
@on_fake_cluster()
async def test_no_request_that_opens_a_session_carries_acknowledgements_and_no_acknowledge_opens_one(
    fake: FakeCluster, by: str
) -> None:
    produce(fake)
    heard: list[KafkaError | None] = []
    async with consumer(fake, **EXPLICIT) as c:
        c.set_acknowledgement_commit_callback(lambda offsets, error: heard.append(error))
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.drop_streams(0)
        await asyncio.sleep(0.1)
        c.acknowledge(message)
        if by == "commit":
            (error,) = (await c.commit_sync()).values()
            assert isinstance(error, NetworkError)
        (again,) = await c.poll(5)
        assert again.delivery_count() == 2
        c.acknowledge(again)
        await c.commit_sync()
        assert [type(error) for error in heard] == [NetworkError, type(None)]
        opening = [request for request in fake.fetches if request.share_session_epoch == 0]
        assert len(opening) == 2
        parts = [part for request in opening for topic in request.topics for part in topic.partitions]
        assert not any(part.acknowledgement_batches for part in parts)
        assert all(request.share_session_epoch > 0 for request in fake.acknowledges)


@pytest.mark.rule("CL-33")
@on_fake_cluster(nodes=2)
async def test_acknowledgements_for_a_node_that_is_gone_fail_with_a_network_error_and_go_nowhere_else(
    fake: FakeCluster,
) -> None:
    fake.move_leader("t", 0, 1)
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.network.stop("node1:9000")
        fake.move_leader("t", 0, 0)
        c.acknowledge(message)
        (error,) = (await c.commit_sync()).values()
        assert isinstance(error, NetworkError)
        await c.poll(2)
        assert fake.acknowledges == []
        carried = [part for request in fake.fetches for topic in request.topics for part in topic.partitions]
        assert not any(part.acknowledgement_batches for part in carried)


@pytest.mark.rule("CL-33")
@on_fake_cluster()
async def test_an_acknowledgement_that_is_under_way_when_its_node_goes_fails_with_a_network_error(
    fake: FakeCluster,
) -> None:
    produce(fake)
    transport = SilentTransport(fake.network)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g", **EXPLICIT}
    async with ShareConsumer(settings, transport=transport) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        c.acknowledge(message)
        transport.silent.add(fake.bootstrap)
        committing = asyncio.create_task(c.commit_sync(2))
        await asyncio.sleep(0.5)
        assert not committing.done()
        fake.drop_streams(0)
        await transport.speak(fake.bootstrap)
        (error,) = (await committing).values()
        assert isinstance(error, NetworkError)
        assert "before it answered" in error.message
        assert fake.acknowledges == [], "nor did it go again"


@pytest.mark.rule("CL-34")
@pytest.mark.parametrize("code", [74, 3, 100], ids=["FENCED_LEADER_EPOCH", "UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID"])
@on_fake_cluster()
async def test_an_error_of_outdated_metadata_has_them_fetched_again_and_is_not_raised(
    fake: FakeCluster, code: int
) -> None:
    async with consumer(fake) as c:
        c.subscribe(["t"])
        await c.poll(10)
        refreshed = fake.metadata_requests
        fake.errors["fetch"].append(ErrorCode.ValueType(code))
        await c.poll(2)
        assert fake.metadata_requests == refreshed + 1
        produce(fake)
        assert len(await c.poll(5)) == 1


@pytest.mark.rule("CL-34")
@on_fake_cluster(nodes=2)
async def test_the_leader_that_an_answer_names_is_used_before_any_metadata_name_it(fake: FakeCluster) -> None:
    transport = HookedTransport(fake)
    async with ShareConsumer({"bootstrap.servers": fake.bootstrap, "group.id": "g"}, transport=transport) as c:
        c.subscribe(["t"])
        await c.poll(2)
        transport.instead["Metadata"].extend([TransportStatus.UNAVAILABLE] * 1000)
        fake.move_leader("t", 0, 1)
        produce(fake)
        assert len(await c.poll(5)) == 1
        assert fake.sessions[1]
        assert c._engine._runtime is not None
        cluster = c._engine._runtime.cluster
        stale = fake.endpoint(0)
        answer = type("Answer", (), {"leader_id": 0, "leader_epoch": 2})
        assert not cluster.learn(fake.partition("t"), answer, [stale])  # type: ignore[arg-type] # as old as the known one
        leader = cluster.leader(fake.partition("t"))
        assert leader is not None
        assert leader.node_id == 1
