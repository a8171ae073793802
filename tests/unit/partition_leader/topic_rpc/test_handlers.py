"""Produce, its stream, ListOffsets, plain Fetch, DeleteRecords."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kip932.api.v1 import delete_records_pb2, fetch_pb2, list_offsets_pb2, produce_pb2
from kip932.errors import (
    FencedLeaderEpochError,
    InvalidRequestError,
    KafkaError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
)
from kip932.ids import REQUEST_PARTITIONS_MAX, TopicIdPartition
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.fetch_and_offsets import OffsetsService
from partition_leader.topic_rpc.log_directory import Leader
from partition_leader.topic_rpc.produce import ProduceService
from shard_runtime.record_log.memory import FaultPoint, Stage
from tests.unit.partition_leader.topic_log.harness import Cluster, record_bytes, until

pytestmark = pytest.mark.asyncio

TOPIC = bytes(range(16))
OTHER = bytes(16)


class Directory:
    """One log led here; partition 1 is led by node 7; the other topic is unknown."""

    def __init__(self, log: TopicLog) -> None:
        self.topic_log = log
        self.forbidden: set[str] = set()

    def log(self, partition: TopicIdPartition) -> TopicLog:
        if partition.topic_id != TOPIC:
            raise UnknownTopicIdError
        if partition.partition != 0:
            raise NotLeaderOrFollowerError
        return self.topic_log

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        return Leader(7, 42, "seven", 9092) if partition.partition == 1 else None

    def max_message_bytes(self, topic_id: bytes) -> int:
        return 1000

    def check_access(self, context: object, operation: str, topic_id: bytes) -> None:
        if operation in self.forbidden:
            raise TopicAuthorizationFailedError


def wire_batch(records: int = 1, **fields: Any) -> produce_pb2.ProduceRequest.Batch:
    values: dict[str, Any] = {
        "record_batch": record_bytes([b"v"] * records),
        "record_count": records,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
    }
    return produce_pb2.ProduceRequest.Batch(**{**values, **fields})


def request(
    *batches: produce_pb2.ProduceRequest.Batch, partition: int = 0, topic: bytes = TOPIC, acks: int = -1
) -> produce_pb2.ProduceRequest:
    made = produce_pb2.ProduceRequest(acks=acks, timeout_ms=5000)
    made.topic_data.add(topic_id=topic).partition_data.add(index=partition).batches.extend(batches)
    return made


def only(response: produce_pb2.ProduceResponse) -> produce_pb2.ProduceResponse.PartitionResult:
    return response.responses[0].partition_responses[0]


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
        ({"is_transactional": True}, 42),
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


@pytest.mark.rule("CM-42", "CM-61")
async def test_wrong_acks_and_missing_rights_are_refused() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        directory = Directory(log)
        service = ProduceService(directory)
        assert only(await service.produce(request(wire_batch(), acks=0))).error_code == 21
        assert only(await service.produce(request(wire_batch(), acks=1))).error_code == 0
        directory.forbidden.add("WRITE")
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
        await until(lambda: len(answers) == 1)  # the refused one overtakes those in flight
        assert answers[0].correlation_id == 102
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(read) == 6  # four in flight, one refused, one read and waiting for room
        gate.set()
        await serving
        offsets = {one.correlation_id - 100: only(one.response).base_offset for one in answers}
        assert offsets == {n: -1 if n == 2 else 2 * (n - (n > 2)) for n in range(20)}


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


async def test_a_stream_with_an_undecodable_request_ends_with_its_error() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            yield produce_pb2.ProduceStreamRequest(request=request(wire_batch(), topic=b"?"))

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            raise AssertionError("nothing is to be answered")

        with pytest.raises(InvalidRequestError, match="16"):
            await service.produce_stream(requests(), write)


async def produce(log: TopicLog, *counts: int) -> None:
    service = ProduceService(Directory(log))
    for count in counts:
        assert only(await service.produce(request(wire_batch(count, max_timestamp_ms=0)))).error_code == 0


def asked(offset: int, epoch: int = -1, partition: int = 0, **fields: Any) -> fetch_pb2.FetchRequest:
    made = fetch_pb2.FetchRequest(max_bytes=1 << 20, **fields)
    made.topics.add(topic_id=TOPIC).partitions.add(
        partition=partition, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    return made


@pytest.mark.rule("CM-45")
async def test_a_plain_fetch_gives_batches_by_offset() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await produce(log, 2, 3)
        service = OffsetsService(Directory(log))
        result = (await service.fetch(asked(3))).responses[0].partitions[0]
        assert [(one.base_offset, one.count) for one in result.records] == [(2, 3)]
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (5, 5, 0)
        beyond = (await service.fetch(asked(6))).responses[0].partitions[0]
        assert beyond.error_code == 1
        old = (await service.fetch(asked(0, epoch=log.epoch - 1))).responses[0].partitions[0]
        assert old.error_code == FencedLeaderEpochError.code
        newer = (await service.fetch(asked(0, epoch=log.epoch + 1))).responses[0].partitions[0]
        assert newer.error_code == NotLeaderOrFollowerError.code
        elsewhere = await service.fetch(asked(0, partition=1, max_wait_ms=10_000, min_bytes=1))
        assert elsewhere.responses[0].partitions[0].current_leader.leader_epoch == 42


@pytest.mark.rule("CM-45")
async def test_a_plain_fetch_waits_for_bytes_and_no_longer_than_asked() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = OffsetsService(Directory(log))
        waiting = asyncio.ensure_future(service.fetch(asked(0, max_wait_ms=20_000, min_bytes=1)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await produce(log, 2)
        assert len((await waiting).responses[0].partitions[0].records) == 1
        late = await service.fetch(asked(2, max_wait_ms=1, min_bytes=1))
        assert len(late.responses[0].partitions[0].records) == 0
        assert log._listeners == []


@pytest.mark.rule("CM-45")
async def test_offsets_are_listed_and_nonsense_refused() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await produce(log, 2, 3)
        service = OffsetsService(Directory(log))
        asking = list_offsets_pb2.ListOffsetsRequest()
        topic = asking.topics.add(topic_id=TOPIC)
        for timestamp in (-1, -2, -3, 0, 1, -4):
            topic.partitions.add(current_leader_epoch=-1, timestamp=timestamp)
        results = (await service.list_offsets(asking)).topics[0].partitions
        assert [(one.error_code, one.offset) for one in results] == [(0, 5), (0, 0), (0, 0), (0, 0), (0, -1), (42, -1)]
        assert [one.leader_epoch for one in results] == [log.epoch] * 4 + [-1, -1]


@pytest.mark.rule("CM-45")
async def test_records_are_deleted_below_an_offset() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await produce(log, 2, 3)
        service = OffsetsService(Directory(log))

        async def delete(offset: int) -> tuple[int, int]:
            asking = delete_records_pb2.DeleteRecordsRequest(timeout_ms=5000)
            asking.topics.add(topic_id=TOPIC).partitions.add(partition_index=0, offset=offset)
            one = (await service.delete_records(asking)).topics[0].partitions[0]
            return one.error_code, one.low_watermark

        assert await delete(3) == (0, 3)
        assert await delete(1) == (0, 3)
        assert await delete(6) == (1, -1)
        assert await delete(-1) == (0, 5)


async def test_errors_are_kafka_errors_when_the_store_cannot_be_read() -> None:
    async with Cluster() as cluster:
        cluster.settings = replace(cluster.settings, call_ms=200)
        log = await cluster.node().lead()
        await produce(log, 2)
        log.set_cache_bytes(0)
        cluster.store.reachable = False
        cluster.store.cut_all()
        with pytest.raises(KafkaError):
            await log.read(0, 100)


@pytest.mark.rule("CM-62")
async def test_a_request_that_names_more_partitions_than_one_may_is_refused_as_a_whole() -> None:
    async with Cluster() as cluster:
        directory = Directory(await cluster.node().lead())
        offsets = OffsetsService(directory)
        produced = request(wire_batch())
        produced.topic_data[0].partition_data.extend(
            [produced.topic_data[0].partition_data[0]] * REQUEST_PARTITIONS_MAX
        )
        asked = list_offsets_pb2.ListOffsetsRequest()
        asked.topics.add(topic_id=TOPIC).partitions.extend(
            list_offsets_pb2.ListOffsetsRequest.Partition() for _ in range(REQUEST_PARTITIONS_MAX + 1)
        )
        fetched = fetch_pb2.FetchRequest()
        fetched.topics.add(topic_id=TOPIC).partitions.extend(
            fetch_pb2.FetchRequest.Partition() for _ in range(REQUEST_PARTITIONS_MAX + 1)
        )
        deleted = delete_records_pb2.DeleteRecordsRequest()
        deleted.topics.add(topic_id=TOPIC).partitions.extend(
            delete_records_pb2.DeleteRecordsRequest.Partition() for _ in range(REQUEST_PARTITIONS_MAX + 1)
        )
        for call in (
            ProduceService(directory).produce(produced),
            offsets.list_offsets(asked),
            offsets.fetch(fetched),
            offsets.delete_records(deleted),
        ):
            with pytest.raises(InvalidRequestError, match="go into one request"):
                await call
        assert directory.topic_log.high_watermark == 0
