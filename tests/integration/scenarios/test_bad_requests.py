"""A server's responses to requests that it cannot serve, and that it continues unaffected."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from kip932 import errors
from kip932.api.v1 import describe_share_group_offsets_pb2 as offsets_pb
from kip932.api.v1 import list_offsets_pb2 as list_pb
from kip932.api.v1 import metadata_pb2 as metadata_pb
from kip932.api.v1 import produce_pb2 as produce_pb
from kip932.api.v1 import share_group_describe_pb2 as describe_pb
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.errors import UnknownTopicOrPartitionError
from kip932.ids import OFFSET_LATEST
from kip932.rpc.transport import TransportError, TransportStatus
from sharegroups import Admin, KafkaError, Producer, ShareConsumer
from tests.integration.scenarios.wire import METHODS, Wire
from tests.support.node import QUICK, Cluster, unique
from tests.support.ports import free_port

#: No protobuf message begins with these bytes.
GARBAGE = b"\xff\xff\xff"
SMALL = {**QUICK, "rpc.message.max.bytes": "65536"}


async def _end(wire: Wire, topic_id: bytes) -> int:
    request = list_pb.ListOffsetsRequest()
    request.topics.add(topic_id=topic_id).partitions.add(
        partition_index=0, timestamp=OFFSET_LATEST, current_leader_epoch=-1
    )
    (found,) = (await wire.call("ListOffsets", request)).topics[0].partitions
    assert found.error_code == 0, found.error_message
    return int(found.offset)


def _produce(topic_id: bytes, batch: bytes, count: int = 1, partition: int = 0) -> produce_pb.ProduceRequest:
    request = produce_pb.ProduceRequest(acks=-1, timeout_ms=5_000)
    request.topic_data.add(topic_id=topic_id).partition_data.add(index=partition).batches.add(
        record_batch=batch, record_count=count, producer_id=-1, producer_epoch=-1, base_sequence=-1
    )
    return request


async def _produced(wire: Wire, request: produce_pb.ProduceRequest) -> Any:
    (result,) = (await wire.call("Produce", request)).responses[0].partition_responses
    assert bool(result.error_code) == bool(result.error_message)
    return result


def _batch(size: int) -> bytes:
    return RecordBatch(records=[Record(value=bytes(size))]).SerializeToString()


@pytest.mark.rule("CM-62")
def test_a_malformed_frame_is_an_invalid_argument(cluster: Cluster) -> None:
    with grpc.insecure_channel(cluster.bootstrap) as channel, grpc.insecure_channel(cluster.internal) as between_nodes:

        def unary(name: str, frame: bytes) -> Any:
            method: Any = channel.unary_unary(METHODS[name].path)
            return method(frame, timeout=20)

        def stream(name: str, frame: bytes, way: grpc.Channel = channel) -> Any:
            method: Any = way.stream_stream(METHODS[name].path)
            return next(method(iter([frame]), timeout=20))

        def internal(name: str, frame: bytes) -> Any:
            return stream(name, frame, between_nodes)

        bad_id = _produce(bytes(15), _batch(1)).SerializeToString()
        attempts: list[tuple[Callable[[str, bytes], Any], str, bytes, str]] = [
            *(
                (unary, name, GARBAGE, "cannot be decoded")
                for name in ("ShareFetch", "ShareGroupHeartbeat", "Metadata")
            ),
            *((stream, name, GARBAGE, "cannot be decoded") for name in ("ShareStream", "ProduceStream")),
            (internal, "StateStream", GARBAGE, "cannot be decoded"),
            (stream, "ShareStream", b"", "neither fetch nor acknowledge"),
            (unary, "Produce", bad_id, "a topic id has 15 bytes; expected 16"),
        ]
        for call, name, frame, reported in attempts:
            with pytest.raises(grpc.RpcError) as refused:
                call(name, frame)
            error: Any = refused.value
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (name, error.details())
            assert reported in error.details()
        assert metadata_pb.MetadataResponse.FromString(unary("Metadata", b"")).error_code == 0
    assert "Traceback" not in cluster.node.errors


@pytest.mark.asyncio
@pytest.mark.rule("CM-62")
async def test_an_oversized_message_is_refused_and_the_connection_lives(clusters: Any) -> None:
    async with Wire(clusters.of(SMALL).bootstrap) as wire:
        topic_id = await wire.create_topic(unique("t"))
        with pytest.raises(TransportError) as refused:
            await wire.call("Produce", _produce(topic_id, _batch(70_000)))
        assert refused.value.status is TransportStatus.RESOURCE_EXHAUSTED
        assert await _end(wire, topic_id) == 0
        assert (await _produced(wire, _produce(topic_id, _batch(1_000)))).base_offset == 0


@pytest.mark.asyncio
@pytest.mark.rule("CM-42")
async def test_batches_that_cannot_be_stored(wire: Wire) -> None:
    topic_id = await wire.create_topic(unique("t"))
    large = await _produced(wire, _produce(topic_id, _batch(1_100_000)))
    assert large.error_code == errors.MessageTooLargeError.code
    assert "max.message.bytes" in large.error_message
    for batch, count in ((b"", 1), (b"\xff\xff\xff", 1), (_batch(1), 0)):
        broken = await _produced(wire, _produce(topic_id, batch, count))
        assert broken.error_code in (errors.CorruptMessageError.code, errors.InvalidRecordError.code), (batch, count)
    missing = await _produced(wire, _produce(topic_id, _batch(1), partition=7))
    assert missing.error_code == errors.UnknownTopicOrPartitionError.code
    assert await _end(wire, topic_id) == 0


@pytest.mark.asyncio
@pytest.mark.rule("CM-22")
async def test_unknown_topics(wire: Wire) -> None:
    no_one = bytes(range(1, 17))
    assert (await _produced(wire, _produce(no_one, _batch(1)))).error_code == errors.UnknownTopicIdError.code
    name = unique("nowhere")
    topics = metadata_pb.MetadataRequest.TopicList(values=[metadata_pb.MetadataRequest.Topic(name=name)])
    for _ in range(2):  # the first request does not create it
        (found,) = (await wire.call("Metadata", metadata_pb.MetadataRequest(topics=topics))).topics
        assert found.error_code == errors.UnknownTopicOrPartitionError.code
        assert name in found.error_message


#: Declared in the protocol of a service for clients, and not served to them.
NOT_SERVED = ("WriteTxnMarkers",)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", NOT_SERVED)
async def test_what_is_not_served_is_unimplemented(wire: Wire, name: str) -> None:
    with pytest.raises(TransportError) as refused:
        await wire.call(name, METHODS[name].request_type())
    assert refused.value.status is TransportStatus.UNIMPLEMENTED


@pytest.mark.asyncio
@pytest.mark.rule("GC-125")
async def test_unknown_groups(wire: Wire) -> None:
    group = unique("unknown")
    address = await wire.coordinator(group)
    request = describe_pb.ShareGroupDescribeRequest(group_ids=[group])
    (described,) = (await wire.call("ShareGroupDescribe", request, address)).groups
    assert described.error_code == errors.GroupIdNotFoundError.code
    assert group in described.error_message
    (found,) = (
        await wire.call(
            "DescribeShareGroupOffsets",
            offsets_pb.DescribeShareGroupOffsetsRequest(
                groups=[offsets_pb.DescribeShareGroupOffsetsRequest.Group(group_id=group)]
            ),
            address,
        )
    ).groups
    assert (found.error_code, list(found.topics)) in ((errors.GroupIdNotFoundError.code, []), (0, []))


def test_the_client_names_a_topic_that_does_not_exist(cluster: Cluster) -> None:
    name = unique("nowhere")
    with Producer(bootstrap_servers=cluster.bootstrap, max_block_ms=500) as producer:
        with pytest.raises(
            UnknownTopicOrPartitionError, match=f"topic '{name}' was not found within 500 ms"
        ) as refused:
            producer.produce(name, "v")
        assert f"sharegroups topics create {name}" in str(refused.value)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert name not in admin.list_topics()


@pytest.fixture
def nowhere() -> str:
    """An address with no listener."""
    return f"127.0.0.1:{free_port()}"


def test_the_client_names_an_address_that_does_not_answer(nowhere: str) -> None:
    began = time.monotonic()
    with Admin(bootstrap_servers=nowhere, default_api_timeout_ms=1_000) as admin, pytest.raises(KafkaError) as refused:
        admin.list_topics()
    assert nowhere in str(refused.value)
    assert time.monotonic() - began < 20, "the wait is bounded"


def test_a_consumer_without_a_cluster_polls_empty_and_closes(nowhere: str) -> None:
    consumer = ShareConsumer(bootstrap_servers=nowhere, group_id="g")
    consumer.subscribe(["t"])
    assert len(consumer.poll(0.5)) == 0
    consumer.close(1.0)
