"""The share stream: order, half-close, connection loss, a client that does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from google.protobuf.message import Message

from kip932.api.v1 import common_pb2, share_acknowledge_pb2, share_fetch_pb2, share_stream_pb2
from kip932.errors import InvalidRequestError
from partition_leader.service import IN_FLIGHT_PER_STREAM
from partition_leader.share_rpc.codec import fill_fetch_response
from shard_runtime.rpc.binding import CallContext

from .worlds import GROUP, TOPIC, World, run, settle


class Stream:
    """The server's end of a stream, driven by a test."""

    def __init__(self, move_in_s: float | None = None) -> None:
        self.context = CallContext("peer", "peer:1", lambda: None, move_in_s=move_in_s)
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.taken = 0
        self.answers: dict[int, Any] = {}
        self.readable = asyncio.Event()
        self.readable.set()

    async def read(self) -> Any:
        message = await self.incoming.get()
        self.taken += 1
        return message

    async def write(self, message: Message) -> None:
        await self.readable.wait()
        assert isinstance(message, share_stream_pb2.ShareStreamResponse)
        assert message.correlation_id not in self.answers
        self.answers[message.correlation_id] = message

    def fetch(
        self,
        number: int,
        epoch: int,
        *,
        session_id: int | None = None,
        traceparent: str = "",
        max_wait_ms: int = 500,
        group: str = GROUP,
        member_epoch: int = 0,
    ) -> None:
        request = share_fetch_pb2.ShareFetchRequest(
            group_id=group,
            member_id="m",
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            member_epoch=member_epoch,
        )
        if session_id is not None:
            request.session_id = session_id
        if epoch == 0:
            request.topics.add(topic_id=TOPIC).partitions.add(partition_index=0)
        self.incoming.put_nowait(
            share_stream_pb2.ShareStreamRequest(correlation_id=number, fetch=request, traceparent=traceparent)
        )

    def move(self, number: int, epoch: int, session_id: int) -> None:
        request = share_acknowledge_pb2.ShareAcknowledgeRequest(
            group_id=GROUP, member_id="m", share_session_epoch=epoch, session_id=session_id
        )
        self.incoming.put_nowait(share_stream_pb2.ShareStreamRequest(correlation_id=number, acknowledge=request))

    def accept(
        self,
        number: int,
        epoch: int,
        first: int,
        last: int,
        *,
        session_id: int | None = None,
        traceparent: str = "",
    ) -> None:
        request = share_acknowledge_pb2.ShareAcknowledgeRequest(
            group_id=GROUP, member_id="m", share_session_epoch=epoch
        )
        if session_id is not None:
            request.session_id = session_id
        partition = request.topics.add(topic_id=TOPIC).partitions.add(partition_index=0)
        partition.acknowledgement_batches.append(
            common_pb2.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
        )
        self.incoming.put_nowait(
            share_stream_pb2.ShareStreamRequest(correlation_id=number, acknowledge=request, traceparent=traceparent)
        )


def play(
    scenario: Callable[[World, Stream, asyncio.Task[None]], Coroutine[Any, Any, None]],
    move_in_s: float | None = None,
    kind: type[Stream] = Stream,
    **settings: Any,
) -> None:
    async def body(world: World) -> None:
        stream = kind(move_in_s)
        served = asyncio.get_running_loop().create_task(world.leader.service.share_stream(stream))
        await scenario(world, stream, served)
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)
        assert world.leader.requests.sessions._by_connection == {}

    run(body, **settings)


@pytest.mark.rule("P-4", "PL-420")
def test_requests_of_one_stream_run_side_by_side_and_answers_leave_as_they_are_ready() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        await world.produce(3)
        stream.fetch(1, 0)
        await settle()
        result = stream.answers[1].fetch
        (acquired,) = result.responses[0].partitions[0].acquired_records
        assert (acquired.first_offset, acquired.last_offset) == (0, 2)
        assert result.acquisition_lock_timeout_ms == 30_000
        stream.fetch(2, 1, max_wait_ms=5_000)
        stream.accept(3, 2, 0, 2)
        await settle()
        assert set(stream.answers) == {1, 3}
        assert stream.answers[3].acknowledge.responses[0].partitions[0].error_code == 0

    play(scenario)


@pytest.mark.rule("PL-520", "PL-524", "PL-502a")
def test_a_cancelled_stream_releases_its_session_and_answers_nothing_more() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        await world.produce(3)
        stream.fetch(1, 0)
        await settle()
        stream.fetch(2, 1, max_wait_ms=60_000)
        pending = world.member("n").fetch(0, max_wait_ms=60_000)
        await settle()
        served.cancel()
        await asyncio.sleep(0)
        stream.accept(3, 2, 0, 2)  # arrives after its stream has ended
        await settle()
        assert await pending.ranges() == [(0, 2, 2)]
        assert set(stream.answers) == {1}

    play(scenario)


@pytest.mark.rule("PL-524", "PL-412")
def test_a_client_that_sends_no_more_still_gets_its_answers() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        await world.produce(3)
        stream.fetch(1, 0)
        await settle()
        world.persister.hold("write")
        stream.fetch(2, 1, max_wait_ms=60_000)
        stream.accept(3, 2, 0, 2)
        stream.incoming.put_nowait(None)
        await settle()
        assert set(stream.answers) == {1, 2}, "the parked fetch ends at once, empty"
        assert not served.done()
        world.persister.let_go("write")
        await settle()
        assert set(stream.answers) == {1, 2, 3}
        assert stream.answers[3].acknowledge.responses[0].partitions[0].error_code == 0
        assert served.done()
        assert world.leader.requests.sessions._by_connection == {}

    play(scenario)


@pytest.mark.rule("CM-62")
def test_a_client_that_reads_nothing_is_not_read_from_for_ever() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        stream.readable.clear()
        for number in range(3 * IN_FLIGHT_PER_STREAM):
            stream.accept(number, 5, 0, 0)
        await settle()
        assert stream.taken <= IN_FLIGHT_PER_STREAM + 1
        stream.incoming.put_nowait(None)
        await asyncio.sleep(60)
        assert not served.done(), "the end of what it sent is behind what was not read"
        stream.readable.set()
        await settle(600)
        assert len(stream.answers) == 3 * IN_FLIGHT_PER_STREAM
        assert served.done()

    play(scenario)


@pytest.mark.rule("CM-62")
def test_no_more_fetches_are_parked_than_a_stream_may_have_in_flight() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        for number in range(IN_FLIGHT_PER_STREAM + 10):
            stream.fetch(number, 0, max_wait_ms=60_000, group=f"g{number}")
        await settle(600)
        assert stream.taken <= IN_FLIGHT_PER_STREAM + 1
        assert stream.answers == {}
        await asyncio.sleep(130)
        assert len(stream.answers) == IN_FLIGHT_PER_STREAM + 10, "the others had their turn"

    play(scenario)


@pytest.mark.rule("CM-62")
def test_a_message_that_cannot_be_read_ends_the_stream() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        stream.incoming.put_nowait(share_stream_pb2.ShareStreamRequest(correlation_id=1))
        await settle()
        with pytest.raises(InvalidRequestError, match="neither fetch nor acknowledge"):
            served.result()

    play(scenario)


@pytest.mark.rule("PL-215", "PL-524")
def test_a_unary_call_that_is_cancelled_forgets_its_parked_fetch() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        request = share_fetch_pb2.ShareFetchRequest(
            group_id=GROUP, member_id="u", max_wait_ms=60_000, min_bytes=1, max_bytes=100, max_records=1
        )
        request.topics.add(topic_id=TOPIC).partitions.add(partition_index=0)
        call = asyncio.get_running_loop().create_task(world.leader.service.share_fetch(request, stream.context))
        await settle()
        assert world.leader.share_partitions.parked == 1
        call.cancel()
        await settle()
        assert world.leader.share_partitions.parked == 0
        assert world.leader.requests.running == 0

    play(scenario)


@pytest.mark.rule("CM-94")
@pytest.mark.parametrize("unary", [False, True], ids=["streams", "calls"])
def test_large_answers_to_share_fetches_are_built_one_per_turn(monkeypatch: pytest.MonkeyPatch, unary: bool) -> None:
    """The part (d) for ShareFetch."""
    monkeypatch.setattr("shard_runtime.rpc.bounds.LARGE_BYTES", 10)
    built: list[int] = []
    fill, turn = fill_fetch_response, 0

    async def noting(*given: Any) -> None:
        built.append(turn)
        await fill(*given)

    monkeypatch.setattr("partition_leader.service.fill_fetch_response", noting)

    async def scenario(world: World) -> None:
        nonlocal turn
        streams = [Stream() for _ in range(10)]
        serve = world.leader.service.share_stream
        served: list[asyncio.Future[Any]] = []
        served += [asyncio.ensure_future(serve(stream)) for stream in streams if not unary]
        for number, stream in enumerate(streams):
            stream.fetch(1, 0, group=f"g{number}", max_wait_ms=60_000)
            if unary:
                request = stream.incoming.get_nowait().fetch
                served.append(asyncio.ensure_future(world.leader.service.share_fetch(request, stream.context)))
        await settle()
        assert built == []
        await world.produce(2)
        while len(built) < len(streams):
            await asyncio.sleep(0)
            turn += 1
        assert len(set(built)) == len(streams)
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)

    run(scenario)


@pytest.mark.rule("PL-533")
def test_a_stream_of_an_old_connection_asks_once_to_move_and_parks_no_fetch_for_long_from_then_on() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        stream.fetch(1, 0)
        await settle()
        stream.fetch(2, 1, max_wait_ms=60_000)
        await asyncio.sleep(9)
        assert set(stream.answers) == {1}
        await asyncio.sleep(1.5)
        assert set(stream.answers) == {1, 2, 0}, "the parked fetch ends at once, empty"
        assert stream.answers[0] == share_stream_pb2.ShareStreamResponse(move=True)
        stream.fetch(3, 2, max_wait_ms=60_000)
        await asyncio.sleep(0.09)
        assert 3 not in stream.answers, "a client that stays must not poll without a pause"
        await asyncio.sleep(0.02)
        assert 3 in stream.answers
        await world.produce(2)
        stream.fetch(4, 3, max_wait_ms=60_000)
        await settle()
        (acquired,) = stream.answers[4].fetch.responses[0].partitions[0].acquired_records
        assert (acquired.first_offset, acquired.last_offset) == (0, 1), "it still acquires what is there"
        await asyncio.sleep(60)
        assert set(stream.answers) == {0, 1, 2, 3, 4}

    play(scenario, 10.0)


@pytest.mark.rule("PL-533", "PL-527")
def test_a_session_moves_to_another_stream_with_its_locks_and_the_former_stream_ends_nothing() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        loop, newer = asyncio.get_running_loop(), Stream()
        await world.produce(3)
        stream.fetch(1, 0)
        await settle()
        session_id = stream.answers[1].fetch.session_id
        second = loop.create_task(world.leader.service.share_stream(newer))
        newer.move(1, 1, session_id)
        await settle()
        assert newer.answers[1].acknowledge.error_code == 0
        other = world.member("n").fetch(0, max_wait_ms=200)
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)
        assert await other.ranges() == [], "the records are still the first member's"
        newer.accept(2, 2, 0, 2, session_id=session_id)
        await settle()
        assert newer.answers[2].acknowledge.responses[0].partitions[0].error_code == 0
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    play(scenario)
