"""Forged batches, compression bombs and requests of very many batches over a real socket: refused with a reason, or
appended with success, while the node's memory stays bounded and a canary keeps working."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import Any, Final

import grpc
import pytest

from kip932.api.v1 import produce_pb2
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.ids import PARTITION_BATCHES_MAX, PRODUCED_BATCHES_MAX
from sharegroups import Admin, ShareConsumer
from tests.attack.canary import Canary
from tests.attack.test_amplification import peak_bytes
from tests.attack.watch import MIB
from tests.integration.scenarios.wire import METHODS, Wire
from tests.support.node import Cluster, unique

pytestmark = pytest.mark.attack

#: The maximum growth of a node's memory in one of these tests; before the fix one batch made it allocate 42 GiB.
GROWTH_MAX: Final = 160 * MIB
EMPTY_RECORD: Final = b"\x12\x00"
INT32_MAX: Final = 2**31 - 1


def _packed(plain: bytes) -> bytes:
    return RecordBatch(compression=1, compressed_records=gzip.compress(plain)).SerializeToString()


LIAR: Final = _packed(EMPTY_RECORD)
HONEST: Final = RecordBatch(records=[Record(value=b"v")]).SerializeToString()


def _topic(cluster: Cluster) -> tuple[str, bytes]:
    async def made() -> tuple[str, bytes]:
        name = unique("lies")
        async with Wire(cluster.bootstrap) as wire:
            return name, await wire.create_topic(name)

    return asyncio.run(made())


def _produced(cluster: Cluster, topic_id: bytes, *batches: tuple[bytes, int]) -> Any:
    """Produce with only the fields that a batch needs; return the result for its only partition."""
    request = produce_pb2.ProduceRequest(acks=-1)
    part = request.topic_data.add(topic_id=topic_id).partition_data.add()
    for data, count in batches:
        part.batches.add(record_batch=data, record_count=count)
    (topic,) = _call(cluster, request).responses
    (result,) = topic.partition_responses
    return result


def _call(cluster: Cluster, request: produce_pb2.ProduceRequest) -> produce_pb2.ProduceResponse:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 * MIB)]
    with grpc.insecure_channel(cluster.bootstrap, options) as channel:
        call: Any = channel.unary_unary(METHODS["Produce"].path)
        return produce_pb2.ProduceResponse.FromString(call(request.SerializeToString(), timeout=60))


@pytest.mark.rule("CM-110")
def test_every_record_of_a_raw_stub_that_sets_no_producer_is_stored(attacked: Cluster, canary: Canary) -> None:
    """Before the fix, all but the first got NONE and offset 0, and were lost."""
    topic, topic_id = _topic(attacked)
    offsets = [_produced(attacked, topic_id, (HONEST, 1)).base_offset for _ in range(5)]
    assert offsets == list(range(5))
    assert _read(attacked, topic, 5) == [b"v"] * 5


@pytest.mark.rule("CM-112")
def test_forged_batches_are_refused_and_cost_no_memory(attacked: Cluster, canary: Canary) -> None:
    topic, topic_id = _topic(attacked)
    before = peak_bytes(attacked.node.pid)
    headers = b"\x12" + b"\x80\x80\x80\x08" + b"\x1a\x00" * (1 << 23)
    lies = [
        (LIAR, INT32_MAX),
        (LIAR, 100_000),
        (LIAR, 2),
        (_packed(EMPTY_RECORD * 20_000_000), 100_000),
        (_packed(headers), 1),
        (_packed(bytes(32 * MIB)), 1),
        (EMPTY_RECORD * 500_000, 1),
        (EMPTY_RECORD * 500_000, 500_000),
    ]
    for data, count in lies:
        refused = _produced(attacked, topic_id, (data, count))
        assert refused.error_code in (2, 87), (count, refused)
        assert refused.error_message
    beside = _produced(attacked, topic_id, (HONEST, 1), (LIAR, INT32_MAX))
    assert beside.error_code == 87
    assert _produced(attacked, topic_id, (LIAR, 1)).base_offset == 0
    assert _produced(attacked, topic_id, (HONEST, 1)).base_offset == 1
    assert _read(attacked, topic, 2) == [None, b"v"]
    assert peak_bytes(attacked.node.pid) - before < GROWTH_MAX


@pytest.mark.rule("CM-113")
def test_a_produce_of_very_many_batches_is_answered_as_it_was_appended(attacked: Cluster, canary: Canary) -> None:
    """Before the fix, 100,000 batches were appended in one flush that outlasted the lease, and the response was an
    error."""
    topic, topic_id = _topic(attacked)
    many = produce_pb2.ProduceRequest(acks=-1)
    batch = produce_pb2.ProduceRequest.Batch(record_batch=HONEST, record_count=1)
    many.topic_data.add(topic_id=topic_id).partition_data.add().batches.extend(
        [batch] * 40_000
    )  # more are refused unparsed (CM-181)
    with pytest.raises(grpc.RpcError) as refused:
        _call(attacked, many)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(PRODUCED_BATCHES_MAX) in error.details()
    over = _produced(attacked, topic_id, *[(HONEST, 1)] * (PARTITION_BATCHES_MAX + 1))
    assert over.error_code == 42
    began = time.monotonic()
    for turn in range(10):
        stored = _produced(attacked, topic_id, *[(HONEST, 1)] * PARTITION_BATCHES_MAX)
        expected = range(turn * PARTITION_BATCHES_MAX, (turn + 1) * PARTITION_BATCHES_MAX)
        assert (stored.error_code, list(stored.base_offsets)) == (0, list(expected))
    assert time.monotonic() - began < 60
    with Admin({"bootstrap.servers": attacked.bootstrap}) as admin:
        assert topic in admin.list_topics()


def _read(cluster: Cluster, topic: str, count: int) -> list[Any]:
    """Return the values that a new group reads from a topic."""
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": unique("g")}
    values: list[Any] = []
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() for message in consumer.poll(timeout=1)]
        consumer.commit_sync()
    return values
