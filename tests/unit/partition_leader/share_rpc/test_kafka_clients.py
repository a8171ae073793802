"""What a ShareFetch and a Fetch say of a transaction, for batches that are made into Kafka's format (CM-223)."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1 import fetch_pb2, share_fetch_pb2
from kip932.ids import READ_COMMITTED, SharePartitionKey, TopicIdPartition
from kip932.kafka_batches import for_kafka_client, header_of, stored
from partition_leader.fetch.fetch import FetchedPartition
from partition_leader.share_partition.core.effects import AcquiredRange
from partition_leader.share_rpc.codec import fill_fetch_response
from partition_leader.share_rpc.values import PartitionAnswer, ShareAnswer
from partition_leader.topic_log.core.batch import NewBatch
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.fetch_and_offsets import OffsetsService
from tests.support.kafka_made import kafka_batch, values
from tests.unit.partition_leader.topic_log.harness import Cluster, record_bytes
from tests.unit.partition_leader.topic_rpc.requests import TOPIC, Directory

pytestmark = pytest.mark.asyncio

A, B = 71, 72
PARTITION = TopicIdPartition(TOPIC, 0)


async def transactions(log: TopicLog) -> None:
    """Write offsets 0 and 1 of one transaction, in both formats, and 2 of another; commit the first, abort the
    second."""
    kafkas = stored(kafka_batch(values(b"a"), producer_id=A, producer_epoch=3, base_sequence=0, is_transactional=True))
    own = record_bytes([b"b"])
    for producer, data, sequence in ((A, kafkas, 0), (A, own, 1), (B, own, 0)):
        if log.transactions.needs_join(producer, 3):
            log.transactions.join(producer, 3)
        made = NewBatch(data, 1, 1_000, producer, 3, sequence, is_transactional=True, transactional_id=f"t{producer}")
        await log.append([made], 1_000)
    await log.transactions.end(A, 3, commit=True)
    await log.transactions.end(B, 3, commit=False)


def seen(records: Any) -> list[tuple[int, int, int, bool, bool]]:
    """Convert batches for one of Kafka's clients; return offset, producer, epoch, whether transactional and control."""
    found = []
    for one in records:
        header = header_of(b"".join(for_kafka_client(one, 9)))
        assert header.leader_epoch == 9
        found.append(
            (header.base_offset, header.producer_id, header.producer_epoch, header.is_transactional, header.is_control)
        )
    return found


EXPECTED = [
    (0, A, 3, True, False),
    (1, A, 3, True, False),
    (2, B, 3, True, False),
    (3, A, 3, True, True),
    (4, B, 3, True, True),
]


@pytest.mark.rule("CM-223")
async def test_a_fetch_gives_producers_and_how_transactions_ended() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await transactions(log)
        request = fetch_pb2.FetchRequest(max_bytes=1 << 20, batch_formats=[2], isolation_level=READ_COMMITTED)
        request.topics.add(topic_id=TOPIC).partitions.add(partition=0, partition_max_bytes=1 << 20)
        part = (await OffsetsService(Directory(log)).fetch(request)).responses[0].partitions[0]
        assert seen(part.records) == EXPECTED
        assert [one.control_type for one in part.records] == [0, 0, 0, 1, 0]
        assert [(one.producer_id, one.first_offset) for one in part.aborted_transactions] == [(B, 2)]


@pytest.mark.rule("CM-223")
async def test_a_share_fetch_does_so_too() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await transactions(log)
        await log.append([NewBatch(record_bytes([b"c"]), 1, 1_000)], 1_000)
        read = await log.read(0, 1 << 20)
        key = SharePartitionKey("g", TOPIC, 0)
        fetched = FetchedPartition(key, ranges=(AcquiredRange(0, 5, 1),), batches=read.batches)
        response = share_fetch_pb2.ShareFetchResponse()
        answer = ShareAnswer(partitions=[PartitionAnswer(PARTITION, fetched=fetched)])
        await fill_fetch_response(response, answer, Directory(log))
        records = response.responses[0].partitions[0].records
        assert seen(records) == [*EXPECTED, (5, -1, -1, False, False)]
        assert [one.control_type for one in records] == [0, 0, 0, 1, 0, 0]
        assert not records[5].HasField("producer_epoch")
