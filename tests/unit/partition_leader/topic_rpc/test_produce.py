"""Produce and its stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kip932.api.v1 import produce_pb2
from kip932.errors import (
    InvalidRequestError,
    MessageTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
)
from partition_leader.topic_rpc.produce import ProduceService
from shard_runtime.rpc.binding import CallContext
from shard_runtime.tracing import tracing
from tests.support.telemetry import telemetry
from tests.twin import FaultPoint, Stage
from tests.unit.partition_leader.topic_log.harness import Cluster, record_bytes, until

from .requests import Directory, only, request, wire_batch

pytestmark = pytest.mark.asyncio
OTHER = bytes(16)


@pytest.mark.rule("CM-42", "CM-14")
async def test_each_partition_has_its_own_result_and_the_leader_is_named() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        mixed = request(wire_batch(2), wire_batch(3))
        mixed.topic_data[0].partition_data.add(index=1).batches.append(wire_batch())
        mixed.topic_data.add(topic_id=OTHER).partition_data.add(index=0).batches.append(wire_batch())
        response = await service.produce(mixed)
        good, elsewhere = response.responses[0].partition_responses
        assert (good.error_code, good.base_offset, list(good.base_offsets)) == (0, 0, [0, 2])
        assert good.log_append_time_ms == cluster.clock.wall_ms()
        assert (elsewhere.error_code, elsewhere.current_leader.leader_id, elsewhere.base_offset) == (6, 7, -1)
        assert [(one.node_id, one.host, one.port) for one in response.node_endpoints] == [(7, "seven", 9092)]
        assert response.responses[1].partition_responses[0].error_code == UnknownTopicIdError.code


@pytest.mark.rule("CM-42")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_count": 0}, 87),
        ({"record_batch": b""}, 87),
        ({"record_count": 2}, 87),
        ({"record_batch": b"\xff\xff\xff"}, 2),
        ({"record_batch": record_bytes([b"x" * 1000])}, 10),
        ({"producer_id": 5, "producer_epoch": 0}, 87),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": 3}, 45),
        ({"is_transactional": True}, 87),
    ],
)
async def test_what_is_not_a_good_batch_is_refused_with_its_own_error(fields: dict[str, Any], code: int) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        refused = only(await service.produce(request(wire_batch(**fields))))
        assert refused.error_code == code
        assert refused.error_message
        assert refused.base_offset == -1
        empty = only(await service.produce(request()))
        assert empty.error_code == 87
        assert log.high_watermark == 0


@pytest.mark.rule("CM-42")
async def test_a_batch_of_as_many_bytes_as_the_topic_allows_is_taken_and_one_of_a_byte_more_is_not() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        limit = Directory(log).max_message_bytes(OTHER)
        spare = limit - len(record_bytes([b"x" * (limit - 100)]))
        fits, too_large = (record_bytes([b"x" * (limit - 100 + spare + more)]) for more in (0, 1))
        assert (len(fits), len(too_large)) == (limit, limit + 1)
        answers = [only(await service.produce(request(wire_batch(record_batch=one)))) for one in (fits, too_large)]
        assert [one.error_code for one in answers] == [0, MessageTooLargeError.code]
        assert f"has {limit + 1} bytes; max.message.bytes of the topic is {limit}" in answers[1].error_message


@pytest.mark.rule("CM-42", "CM-61")
async def test_wrong_acks_and_missing_rights_are_refused() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        directory = Directory(log)
        service = ProduceService(directory)
        assert only(await service.produce(request(wire_batch(), acks=0))).error_code == 21
        assert only(await service.produce(request(wire_batch(), acks=1))).error_code == 0
        directory.forbidden = True
        assert only(await service.produce(request(wire_batch()))).error_code == TopicAuthorizationFailedError.code
        with pytest.raises(InvalidRequestError, match="16"):
            await service.produce(request(wire_batch(), topic=b"short"))
        assert log.high_watermark == 1


@pytest.mark.rule("P-4", "CM-42")
async def test_a_stream_appends_in_order_of_arrival_with_several_requests_in_flight() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log), in_flight_per_stream=4)
        gate = asyncio.Event()

        async def hold(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                await gate.wait()

        cluster.store.hook = hold
        read: list[int] = []
        answers: list[produce_pb2.ProduceStreamResponse] = []

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            for number in range(20):
                read.append(number)
                partition = 1 if number == 2 else 0
                batch = wire_batch(2, producer_id=9, producer_epoch=0, base_sequence=2 * (number - (number > 2)))
                yield produce_pb2.ProduceStreamRequest(
                    correlation_id=100 + number, request=request(batch, partition=partition)
                )

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            answers.append(answer)

        serving = asyncio.ensure_future(service.produce_stream(requests(), write))
        await until(lambda: len(answers) == 1)  # the refusal overtakes the requests in flight
        assert answers[0].correlation_id == 102
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(read) == 6  # four in flight, one refused, and one that has been read and waits for room
        gate.set()
        await serving
        offsets = {one.correlation_id - 100: only(one.response).base_offset for one in answers}
        assert offsets == {n: -1 if n == 2 else 2 * (n - (n > 2)) for n in range(20)}


@pytest.mark.rule("PL-534")
async def test_a_stream_of_an_old_connection_asks_once_to_move_and_serves_what_still_comes() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        answers: list[produce_pb2.ProduceStreamResponse] = []
        more = asyncio.Event()

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            await more.wait()
            yield produce_pb2.ProduceStreamRequest(correlation_id=7, request=request(wire_batch()))

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            answers.append(answer)

        context = CallContext("peer", "peer:1", lambda: None, move_in_s=-1.0)
        serving = asyncio.ensure_future(service.produce_stream(requests(), write, context))
        await until(lambda: bool(answers))
        assert answers == [produce_pb2.ProduceStreamResponse(move=True)]
        more.set()
        await serving
        assert [(answer.correlation_id, answer.move) for answer in answers] == [(0, True), (7, False)]
        assert only(answers[1].response).base_offset == 0


@pytest.mark.rule("P-4")
async def test_a_stream_whose_answers_cannot_be_written_ends() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        hang = asyncio.Event()

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            yield produce_pb2.ProduceStreamRequest(correlation_id=1, request=request(wire_batch()))
            await hang.wait()

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await service.produce_stream(requests(), write)
        assert log.high_watermark == 1


@pytest.mark.rule("CM-216")
async def test_the_spans_of_a_stream_that_is_cancelled_end_when_the_outcome_is_known() -> None:
    """Two requests wait for the store; a third one is refused as a whole."""
    sender = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        gate = asyncio.Event()

        async def hold(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                await gate.wait()

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            for _ in range(2):
                yield produce_pb2.ProduceStreamRequest(request=request(wire_batch()), traceparent=sender)
            await gate.wait()

        async def bad() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            yield produce_pb2.ProduceStreamRequest(request=request(wire_batch(), topic=b"?"), traceparent=sender)

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            raise AssertionError("no response may be sent")

        cluster.store.hook = hold
        with telemetry() as found:
            tracing.refresh()
            service = ProduceService(Directory(log))
            serving = asyncio.ensure_future(service.produce_stream(requests(), write))
            await until(lambda: found.open.begun >= 2)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            with pytest.raises(InvalidRequestError):
                await service.produce_stream(bad(), write)
            assert "kip932.api.v1.PartitionLeaderService/Produce" in found.unended(), "they are still appended"
            gate.set()
            await until(lambda: not found.unended())
            produced = found.spans("kip932.api.v1.PartitionLeaderService/Produce")
            assert [(span.attributes or {}).get("error.type") for span in produced] == [
                "INVALID_REQUEST", None, None
            ]  # fmt: skip
        tracing.refresh()


async def test_a_stream_with_an_undecodable_request_ends_with_its_error() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            yield produce_pb2.ProduceStreamRequest(request=request(wire_batch(), topic=b"?"))

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            raise AssertionError("no response may be sent")

        with pytest.raises(InvalidRequestError, match="16"):
            await service.produce_stream(requests(), write)
