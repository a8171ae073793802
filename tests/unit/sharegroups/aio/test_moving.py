"""Leaders that ask the clients of their streams to move to other connections (CL-144)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import NetworkError
from sharegroups.aio import Producer, ShareConsumer
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.faults import NO_ROOM
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.twin.transport import InMemoryTransport


class _FirstStreamClosesSlowly(InMemoryTransport):
    """A transport whose first stream takes five seconds to close."""

    opened = 0

    async def open_stream(self, address: str, method: Any) -> Any:
        stream: Any = await super().open_stream(address, method)
        self.opened += 1
        if self.opened == 1:
            close = stream.close

            async def slowly() -> None:
                await asyncio.sleep(5)
                await close()

            stream.close = slowly
        return stream


def _epochs(fake: FakeCluster) -> list[int]:
    requests: list[Any] = [*fake.fetches, *fake.acknowledges]
    return [request.share_session_epoch for request in requests]


@pytest.mark.rule("CL-144", "PL-533")
@on_fake_cluster()
async def test_a_session_moves_without_a_poll_and_its_application_keeps_what_it_holds(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        (first,) = fake.open_streams[0]
        await fake.ask_to_move(0)
        await asyncio.sleep(1)
        (second,) = fake.open_streams[0]
        assert second is not first
        assert second.context.connection_id != first.context.connection_id
        c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
        produce(fake)
        (message,) = await c.poll(5)
        assert message.delivery_count() == 1
        c.acknowledge(message)
    assert sorted(epoch for epoch in _epochs(fake) if epoch >= 0) == list(range(len(_epochs(fake)) - 1))
    assert [list(r.topics) for r in fake.acknowledges[:1]] == [[]]


@pytest.mark.rule("CL-144", "CL-28")
@on_fake_cluster()
async def test_close_waits_for_the_stream_that_was_left(fake: FakeCluster) -> None:
    produce(fake)
    settings = {"bootstrap.servers": fake.bootstrap, "group.id": "g"}
    async with ShareConsumer(settings, transport=_FirstStreamClosesSlowly(fake.network, "client")) as c:
        c.subscribe(["t"])
        assert len(await c.poll(5)) == 1
        await fake.ask_to_move(0)
        await asyncio.sleep(1)
        assert len(fake.open_streams[0]) == 2
    assert not fake.open_streams[0]


@pytest.mark.rule("CL-144")
@on_fake_cluster()
async def test_acknowledgements_and_a_parked_fetch_are_answered_before_the_move(fake: FakeCluster) -> None:
    produce(fake, 2)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        messages = await c.poll(5)
        c.acknowledge(messages[0])
        c.acknowledge(messages[1])
        polling = asyncio.create_task(c.poll(20))
        await asyncio.sleep(0.1)  # the fetch with these acknowledgements is parked
        await fake.ask_to_move(0)
        await asyncio.sleep(0.1)
        produce(fake)
        (message,) = await polling
        assert (message.offset(), message.delivery_count()) == (2, 1)
        c.acknowledge(message)
        assert set((await c.commit_sync()).values()) == {None}
        assert set(fake.states("t").values()) == {"acknowledged"}
    assert 0 not in _epochs(fake)[1:]


@pytest.mark.rule("CL-144")
@on_fake_cluster()
async def test_the_old_stream_stays_until_the_leader_has_accepted_a_request_over_the_new_one(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        (first,) = fake.open_streams[0]
        fake.throttle_ms = 300
        fake.errors["acknowledge_top"].extend([NO_ROOM, NO_ROOM])
        await fake.ask_to_move(0)
        await asyncio.sleep(0.15)
        assert first in fake.open_streams[0]
        assert len(fake.open_streams[0]) == 2
        await asyncio.sleep(3)
        assert first not in fake.open_streams[0]
        c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
    assert 0 not in _epochs(fake)[1:]


@pytest.mark.rule("CL-144")
@on_fake_cluster()
async def test_a_move_that_is_refused_loses_nothing_and_the_old_stream_is_used_until_one_is_accepted(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (held,) = await c.poll(5)
        (old,) = fake.open_streams[0]
        fake.errors["share_stream"].extend([1] * 40)
        await fake.ask_to_move(0)
        for offset in range(1, 3):
            c.acknowledge(held)
            assert list((await c.commit_sync()).values()) == [None]
            produce(fake)
            (held,) = await c.poll(5)
            assert (held.offset(), held.delivery_count()) == (offset, 1)
            await asyncio.sleep(3)
            assert list(fake.open_streams[0]) == [old]
        assert 2 <= len(fake.errors["share_stream"]) <= 35, "it tries again, with pauses"
        fake.errors["share_stream"].clear()
        await asyncio.sleep(3)
        (new,) = fake.open_streams[0]
        assert new is not old
        c.acknowledge(held)
        assert list((await c.commit_sync()).values()) == [None]
    assert sorted(epoch for epoch in _epochs(fake) if epoch >= 0) == list(range(len(_epochs(fake)) - 1))
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in warnings if "the new connection failed" in text]) == 1, warnings


@pytest.mark.rule("CL-144")
@on_fake_cluster()
async def test_requests_on_a_new_stream_that_breaks_unprocessed_are_sent_again_with_their_epochs(
    fake: FakeCluster,
) -> None:
    outcomes: list[Any] = []
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.set_acknowledgement_commit_callback(lambda _, error: outcomes.append(error))
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        for offset in range(1, 10):
            fake.errors["share_stream"].append(1)
            await fake.ask_to_move(0)
            await asyncio.sleep(offset * 0.02)
            c.acknowledge(message)
            c.commit_async()
            polling = asyncio.create_task(c.poll(60))
            await asyncio.sleep(1)
            assert not fake.errors["share_stream"]
            produce(fake)
            (message,) = await polling
            assert (message.offset(), message.delivery_count()) == (offset, 1)
            await asyncio.sleep(3)
        c.acknowledge(message)
    assert outcomes == [None] * 10
    assert set(fake.states("t").values()) == {"acknowledged"}
    assert sorted(epoch for epoch in _epochs(fake) if epoch >= 0) == list(range(len(_epochs(fake)) - 1))


@pytest.mark.rule("CL-144", "CL-31")
@on_fake_cluster()
async def test_a_request_that_was_processed_on_a_new_stream_before_it_broke_is_not_repeated(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.errors["share_stream_lost"].append(1)
        await fake.ask_to_move(0)
        c.acknowledge(message)
        (error,) = (await c.commit_sync()).values()
        assert isinstance(error, NetworkError), "its outcome is unknown"
        assert set(fake.states("t").values()) == {"acknowledged"}
        assert not await c.poll(3)
        produce(fake)
        (after,) = await c.poll(5)
        c.acknowledge(after)
    assert _epochs(fake).count(0) == 2


@pytest.mark.rule("CL-144", "CL-31")
@on_fake_cluster()
async def test_a_move_that_is_refused_until_the_old_stream_ends_is_a_lost_session(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.errors["share_stream"].extend([1] * 100)
        await fake.ask_to_move(0)
        await asyncio.sleep(1)
        fake.drop_streams(0)
        await asyncio.sleep(3)
        c.acknowledge(message)
        (error,) = (await c.commit_sync()).values()
        assert isinstance(error, NetworkError)
        fake.errors["share_stream"].clear()
        (again,) = await c.poll(5)
        assert again.delivery_count() == 2
        c.acknowledge(again)


@pytest.mark.rule("CL-144", "CL-37")
@on_fake_cluster()
async def test_a_consumer_that_is_closed_while_its_move_is_refused_sends_its_acknowledgements(
    fake: FakeCluster,
) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.errors["share_stream"].extend([1] * 3)
        await fake.ask_to_move(0)
        c.acknowledge(message)
    assert set(fake.states("t").values()) == {"acknowledged"}


@pytest.mark.rule("CL-144", "CL-31")
@on_fake_cluster()
async def test_a_session_that_ended_before_it_moved_is_a_lost_session(fake: FakeCluster) -> None:
    produce(fake)
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        fake.errors["acknowledge_top"].append(122)
        await fake.ask_to_move(0)
        await asyncio.sleep(1)
        assert len(fake.open_streams[0]) == 1
        c.acknowledge(message)
        (error,) = (await c.commit_sync()).values()
        assert isinstance(error, NetworkError)
        (again,) = await c.poll(5)
        assert again.delivery_count() == 2
        c.acknowledge(again)


@pytest.mark.rule("CL-144", "PL-534")
@on_fake_cluster()
async def test_a_producer_moves_and_no_record_is_repeated(fake: FakeCluster) -> None:
    async with Producer({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as producer:
        streams: set[object] = set()
        for number in range(30):
            sending = [asyncio.create_task(producer.send("t", b"%d.%d" % (number, part))) for part in range(3)]
            fake.hold_produce = asyncio.Event()
            await asyncio.sleep(0.12)
            streams.update(fake.open_streams[0])
            await fake.ask_to_move(0)
            sending.append(asyncio.create_task(producer.send("t", b"%d.late" % number)))
            await asyncio.sleep(0.05)
            fake.hold_produce.set()
            await asyncio.gather(*sending)
        await asyncio.sleep(0.1)
        assert len(fake.open_streams[0]) == 1
    assert fake.log("t").end == 120
    assert len(streams) == 30


@pytest.mark.rule("CL-144")
@on_fake_cluster()
async def test_a_node_that_asks_every_stream_at_once_costs_ten_connections_a_second_at_most(fake: FakeCluster) -> None:
    fake.old_connections.add(0)
    produce(fake)
    seen: set[str] = set()
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        (message,) = await c.poll(5)
        for _ in range(200):
            await asyncio.sleep(0.01)
            seen.update(stream.context.connection_id for stream in fake.open_streams[0])
        c.acknowledge(message)
        assert list((await c.commit_sync()).values()) == [None]
    assert 5 < len(seen) <= 22
