"""S-015, S-035, S-042: limits on sessions and members, and production's default for where a group starts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
import redis

from kip932 import errors
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from kip932.rpc.transport import ClientStream
from tests.integration.scenarios.clients import BOUND_S, World, deliveries, first
from tests.integration.scenarios.keys import Key
from tests.integration.scenarios.sessions import Session, acquired, cut, part
from tests.integration.scenarios.wire import METHODS, Wire, attempts
from tests.support.node import QUICK, Cluster, unique

LIMIT = errors.ShareSessionLimitReachedError.code


#: A limit of two sessions and two members, and production's default for where groups start, which `up` changes.
TWO_SESSIONS = {
    **QUICK,
    "group.share.max.share.sessions": "2",
    "group.share.max.size": "2",
    "group.share.auto.offset.reset": "latest",
}


@pytest.fixture(scope="module")
def two_sessions() -> Iterator[Cluster]:
    with Cluster(TWO_SESSIONS) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def wire(two_sessions: Cluster) -> AsyncIterator[Wire]:
    async with Wire(two_sessions.bootstrap, two_sessions.internal) as made:
        yield made


class Connection(Wire):
    """A separate connection that sends ShareFetch requests over one stream; their sessions end with it."""

    _stream: ClientStream[Any, Any] | None = None

    async def call(self, name: str, request: Any, address: str | None = None) -> Any:
        if name != "ShareFetch":
            return await super().call(name, request, address)
        if self._stream is None:
            self._stream = await self.transport.open_stream(address or self.bootstrap, METHODS["ShareStream"])
        await self._stream.write(ShareStreamRequest(correlation_id=1, fetch=request))
        answer = await self._stream.read()
        assert answer is not None, "the stream ended"
        return answer.fetch


@pytest.mark.asyncio
@pytest.mark.scenario("S-035")
async def test_the_limit_of_sessions_and_the_end_of_their_connections(wire: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    members = [await wire.join(group, [topic]) for _ in range(2)]
    connections = [Connection(wire.bootstrap) for _ in range(6)]
    m1, m2, m3, m3_again, m4, m5 = (
        Session(connection, group, member, topic_id)
        for connection, member in zip(connections, [*members, "m3", "m3", "m4", "m5"], strict=True)
    )
    try:
        assert [(await one.fetch(epoch=0, wait_ms=0)).error_code for one in (m1, m2)] == [0, 0]
        for _ in range(2):
            refused = await m3.fetch(epoch=0, wait_ms=100)
            assert (refused.error_code, list(refused.responses)) == (LIMIT, [])
        assert (await m1.fetch(wait_ms=0)).error_code == 0, "no session was evicted"
        for connection in connections[:3]:
            await connection.transport.close()
        async for _ in attempts():
            answer = await m3_again.fetch(epoch=0, wait_ms=100)
            if answer.error_code != LIMIT:
                break
        assert answer.error_code == 0
        assert [(await one.fetch(epoch=0, wait_ms=0)).error_code for one in (m4, m5)] == [0, LIMIT], "both were freed"
    finally:
        for connection in connections:
            await connection.transport.close()


@pytest.mark.asyncio
@pytest.mark.scenario("S-042")
async def test_an_uninitialised_start_offset_is_resolved_from_the_log_by_the_policy(
    two_sessions: Cluster, wire: Wire
) -> None:
    topic = unique("t")
    topic_id = await wire.create_topic(topic)
    await wire.produce(topic_id, 15)
    await cut(wire, topic_id, 3)
    for policy, start in (("latest", 15), ("earliest", 3), (None, 15)):
        group = unique("g")
        if policy is not None:
            await wire.set_group(group, {"share.auto.offset.reset": policy})
        key = Key(wire, two_sessions, group, topic_id)
        session = Session(wire, group, await wire.join(group, [topic]), topic_id)
        state_epoch, _, before, _ = await key.summary()
        assert before == -1
        found = acquired(await session.fetch(epoch=0, min_bytes=0, wait_ms=5_000))
        if not found and start < 15:
            found = await session.acquire()
        assert found == ([(start, 14, 1)] if start < 15 else [])
        assert (await key.summary())[::2] == (state_epoch, start), policy
        assert (await session.fetch(epoch=-1)).error_code == 0


@pytest.mark.asyncio
@pytest.mark.scenario("S-042")
async def test_a_failed_lookup_guesses_no_start_offset(two_sessions: Cluster, wire: Wire) -> None:
    """The store refuses to read the batch in which a leader searches for a timestamp."""
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    await wire.produce(topic_id, 15)
    await wire.produce(topic_id, 5, timestamp_ms=time.time_ns() // 1_000_000)
    await wire.set_group(group, {"share.auto.offset.reset": "by_duration:PT1H"})
    key = Key(wire, two_sessions, group, topic_id)
    session = Session(wire, group, await wire.join(group, [topic]), topic_id)
    with redis.Redis(unix_socket_path=two_sessions.store_socket) as store:
        store.execute_command("ACL", "SETUSER", "default", "-xrange")
        try:
            answer = await session.fetch(epoch=0, wait_ms=5_000)
            assert (answer.error_code, part(answer).error_code) == (0, errors.UnknownServerError.code)
            assert (await key.summary())[2] == -1
        finally:
            store.execute_command("ACL", "SETUSER", "default", "+xrange")
    await session.fetch(epoch=-1)
    session = Session(wire, group, session.member, topic_id)
    await session.fetch(epoch=0, wait_ms=0)
    await wire.until_state(group, topic_id, 15, [])
    assert (await session.fetch(epoch=-1)).error_code == 0


@pytest.mark.scenario("S-015")
def test_by_default_a_group_begins_at_the_end_that_its_partition_has_when_it_is_first_initialised(
    two_sessions: Cluster,
) -> None:
    world = World(two_sessions)
    with world.consumer() as consumer:
        world.produce("before")
        deadline, start = time.monotonic() + BOUND_S, -1
        while start != 1 and time.monotonic() < deadline:
            assert len(consumer.poll(0.2)) == 0
            start = world.ask("summary", world.group, world.topic_id).start_offset
        assert start == 1
        world.produce("after")
        assert deliveries(first(consumer)) == [(1, 1)]
        assert len(consumer.poll(0.5)) == 0
    assert world.state()[:2] == (2, [])
