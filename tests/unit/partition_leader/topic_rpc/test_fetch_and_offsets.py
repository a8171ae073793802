"""ListOffsets, plain Fetch, DeleteRecords."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kip932.api.v1 import delete_records_pb2, fetch_pb2, list_offsets_pb2
from kip932.errors import (
    FencedLeaderEpochError,
    InvalidRequestError,
    KafkaError,
    NotLeaderOrFollowerError,
    ThrottlingQuotaExceededError,
)
from kip932.ids import REQUEST_PARTITIONS_MAX
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.fetch_and_offsets import OffsetsService
from partition_leader.topic_rpc.produce import ProduceService
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.budget import Budget, Holder, Share
from tests.twin import FaultPoint, Stage
from tests.unit.partition_leader.topic_log.harness import Cluster

from .requests import Directory, only, request, wire_batch

pytestmark = pytest.mark.asyncio
TOPIC = bytes(range(16))


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


@pytest.mark.rule("CM-92")
async def test_a_plain_fetch_without_room_for_its_answer_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partition_leader.topic_rpc.fetch_and_offsets.WAIT_S", 0)
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0))
        await produce(log, 2)
        reads: list[int] = []

        async def watch(point: FaultPoint) -> None:
            reads.extend([1] * (point.stage is Stage.SEND and point.has("XRANGE")))

        cluster.store.hook = watch
        budget = Budget(1 << 20)
        caller = CallContext("peer", "connection", lambda: None, share=Share(budget, Holder("connection")))
        budget.add(Holder("others"), 1 << 20)
        with pytest.raises(ThrottlingQuotaExceededError):
            await OffsetsService(Directory(log)).fetch(asked(0), caller)
        assert reads == []
        budget.give(Holder("others"), 1 << 20)
        answer = await OffsetsService(Directory(log)).fetch(asked(0), caller)
        assert (len(answer.responses[0].partitions[0].records), len(reads)) == (1, 1)
        assert budget.used_bytes == 0


@pytest.mark.rule("CM-92")
async def test_a_plain_fetch_that_fails_or_whose_client_goes_returns_the_room_for_its_answer() -> None:
    """The room of a Fetch that gives no answer: a client that breaks off its fetches must not use up its part."""
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0))
        await produce(log, 2)
        budget, reading = Budget(1 << 20), asyncio.Event()
        caller = CallContext("peer", "connection", lambda: None, share=Share(budget, Holder("connection")))
        unreadable = asked(0)
        unreadable.topics[0].topic_id = b"short"
        with pytest.raises(InvalidRequestError):
            await OffsetsService(Directory(log)).fetch(unreadable, caller)
        assert budget.used_bytes == 0

        async def hold(point: FaultPoint) -> None:
            if point.stage is Stage.SEND and point.has("XRANGE"):
                reading.set()
                await asyncio.sleep(3_600)

        cluster.store.hook = hold
        fetching = asyncio.ensure_future(OffsetsService(Directory(log)).fetch(asked(0), caller))
        await reading.wait()
        assert budget.used_bytes > 0
        fetching.cancel()
        await asyncio.wait({fetching})
        assert budget.used_bytes == 0


@pytest.mark.rule("CM-94")
async def test_large_answers_of_fetches_are_built_one_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part (d) for Fetch."""
    monkeypatch.setattr("shard_runtime.rpc.bounds.LARGE_BYTES", 10)
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await produce(log, 2)
        service, turn, ended = OffsetsService(Directory(log)), 0, list[int]()

        async def fetch() -> None:
            await service.fetch(asked(0))
            ended.append(turn)

        fetches = [asyncio.ensure_future(fetch()) for _ in range(20)]
        while len(ended) < len(fetches):
            await asyncio.sleep(0)
            turn += 1
        await asyncio.gather(*fetches)
        assert len(set(ended)) == len(fetches)


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


@pytest.mark.rule("CM-45", "CM-42")
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
        stored = only(await ProduceService(Directory(log)).produce(request(wire_batch())))
        assert (stored.base_offset, stored.log_start_offset) == (5, 5)


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
