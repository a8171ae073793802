"""A client that does not read its responses: a share stream buffers a bounded number of bytes for it (CM-62)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kip932.api.v1 import share_fetch_pb2, share_stream_pb2
from kip932.errors import InvalidRequestError
from kip932.ids import REQUEST_PARTITIONS_MAX
from partition_leader import service as service_module
from partition_leader.service import _ShareStream
from partition_leader.share_rpc.values import FETCH_MAX_BYTES
from tests.unit.partition_leader.topic_log.harness import batch

from .test_stream import Stream, play
from .worlds import GROUP, TOPIC, World, run, settle

ROOM = 10_000
#: The approximate size of one produced batch in bytes.
BATCH = 3_000

Scenario = Callable[[World, Stream, _ShareStream], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "ANSWER_BYTES_PER_STREAM", ROOM)


def observe(scenario: Scenario) -> None:
    """Serve a stream whose internals the scenario can inspect."""

    async def body(world: World) -> None:
        stream = Stream()
        served = _ShareStream(stream, world.leader.led, world.leader.requests)
        task = asyncio.get_running_loop().create_task(served.run())
        await scenario(world, stream, served)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(body)


async def produce(world: World, batches: int, number: int = 0) -> None:
    for _ in range(batches):
        await world.log(number).append([batch(1, text="x" * BATCH)], 10_000)


def fetch(stream: Stream, number: int, epoch: int, group: str = GROUP, *partitions: int, **fields: Any) -> None:
    values = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500}
    request = share_fetch_pb2.ShareFetchRequest(
        group_id=group, member_id="m", share_session_epoch=epoch, **{**values, **fields}
    )
    if epoch == 0:
        topic = request.topics.add(topic_id=TOPIC)
        for partition in partitions or (0,):
            topic.partitions.add(partition_index=partition)
    stream.incoming.put_nowait(share_stream_pb2.ShareStreamRequest(correlation_id=number, fetch=request))


def size(answer: Any) -> int:
    return sum(len(one.batch) for part in answer.fetch.responses[0].partitions for one in part.records)


@pytest.mark.rule("CM-62")
def test_answers_that_are_not_taken_are_bounded_and_then_no_request_is_read() -> None:
    async def scenario(world: World, stream: Stream, served: _ShareStream) -> None:
        await produce(world, 30)
        stream.readable.clear()
        for number in range(20):
            fetch(stream, number, number, max_bytes=2 * BATCH)
            await settle()
            assert served._unwritten_bytes <= ROOM + BATCH + 100
        taken = stream.taken
        assert taken < 20
        assert served._unwritten_bytes >= ROOM
        await asyncio.sleep(600)
        assert stream.taken == taken, "it waits for the reader, however long"
        stream.readable.set()
        await settle(600)
        assert stream.taken == 20
        assert [number for number in range(15) if not size(stream.answers[number])] == []
        assert served._unwritten_bytes == 0

    observe(scenario)


@pytest.mark.rule("CM-62", "P-5")
def test_parked_fetches_share_the_room_and_nothing_waits_behind_them() -> None:
    async def scenario(world: World, stream: Stream, served: _ShareStream) -> None:
        groups = [f"g{number}" for number in range(12)]
        for number, group in enumerate(groups):
            fetch(stream, number, 0, group)
        stream.accept(100, 3, 0, 0)  # refused, but read and answered, although all the room is reserved
        await settle()
        assert set(stream.answers) == {100}
        assert served._reserved_bytes <= ROOM + len(groups)
        stream.readable.clear()
        await world.log().append([batch(1, text="x" * BATCH) for _ in range(5)], 10_000)
        await settle(600)
        # One fetch reserved all the room. The others got just the one batch that a fetch always gets.
        assert 4 * BATCH <= served._unwritten_bytes <= ROOM + (len(groups) + 1) * (BATCH + 100)
        assert served._reserved_bytes == 0
        stream.readable.set()
        await settle(600)
        assert served._unwritten_bytes == 0
        assert sorted(size(stream.answers[number]) // BATCH for number in range(12)) == [1] * 11 + [3]

    observe(scenario)


@pytest.mark.rule("CM-62", "PL-207")
def test_an_answer_is_no_larger_than_its_room_though_every_partition_gives_a_batch_at_least() -> None:
    async def scenario(world: World, stream: Stream, served: _ShareStream) -> None:
        del served
        fetch(stream, 0, 0, GROUP, 0, 1, 2, 3, max_wait_ms=10)
        await asyncio.sleep(1)
        for number in range(4):
            await produce(world, 1, number)
        fetch(stream, 1, 1, max_bytes=4, max_wait_ms=0)  # one byte per partition: each still gets a batch
        await settle()
        assert size(stream.answers[1]) // BATCH == ROOM // BATCH
        fetch(stream, 2, 2, max_bytes=4, max_wait_ms=0)
        await settle()
        assert size(stream.answers[2]) // BATCH == 4 - ROOM // BATCH, "those left out come with the next fetch"

    observe(scenario)


@pytest.mark.rule("CM-62", "PL-201")
def test_without_a_stream_too_an_answer_is_bounded_by_the_service() -> None:
    async def scenario(world: World) -> None:
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=10).answer()
        for number in range(4):
            await produce(world, 1, number)
        answer = await member.fetch().answer()
        assert len([one for one in answer.partitions if one.size_bytes]) == 2

    assert FETCH_MAX_BYTES > 50 << 20
    run(scenario, fetch_max_bytes=2 * BATCH + 100)


@pytest.mark.rule("CM-62")
def test_a_request_that_names_too_many_partitions_ends_the_stream() -> None:
    async def scenario(world: World, stream: Stream, served: asyncio.Task[None]) -> None:
        fetch(stream, 1, 0, GROUP, *range(REQUEST_PARTITIONS_MAX + 1))
        await settle()
        with pytest.raises(InvalidRequestError, match="go into one request"):
            served.result()

    play(scenario)
