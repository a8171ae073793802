"""Produce: batches of Kafka's producers on their way to the leader, and its answer on the way back."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import Making
from kafka_listener.requests import produce
from kip932.acls import Operation
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import (
    InvalidRequestError,
    KafkaError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kip932.kafka_batches import from_native, header_of, stored
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ORDERS, PAYMENTS, ScriptedConnection, allow, answered, asked

REQUEST = api("Produce").request
VERSIONS = range(3, 14)
answer = partial(answered, "Produce")


def batch(records: int = 2, compression: Compression = Compression.NONE, **producer: Any) -> bytes:
    """Return a batch as one of Kafka's producers sends it."""
    values = [Record(value=b"v%d" % number, timestamp_delta_ms=number) for number in range(records)]
    data = RecordBatch(base_timestamp_ms=1000, records=values, compression=compression)
    if compression is not Compression.NONE:
        plain = RecordBatch(records=values).SerializeToString()
        data = RecordBatch(
            base_timestamp_ms=1000,
            compression=compression,
            compressed_records=frames_of(compression).compress(plain, None),
        )
    return from_native(data.SerializeToString(), records, 0, **producer)


BATCH = batch()
NUMBERED = batch(3, producer_id=2**62, producer_epoch=4, base_sequence=9)


def sent(version: int, topics: dict[str, dict[int, bytes | None]], acks: int = -1, **fields: Any) -> Any:
    """Return a request with the records of each partition of each topic."""
    ids = {"orders": ORDERS, "payments": PAYMENTS}
    data = []
    for name, partitions in topics.items():
        topic = REQUEST.TopicProduceData(
            partition_data=[
                REQUEST.PartitionProduceData(index=index, records=records) for index, records in partitions.items()
            ]
        )
        if version >= 13:
            topic.topic_id = ids.get(name, b"?" * 16)
        else:
            topic.name = name
        data.append(topic)
    return REQUEST(acks=acks, timeout_ms=1500, topic_data=data, **fields)


def confirmed(request: ProduceRequest) -> ProduceResponse:
    """Answer as a leader that has stored everything, at offsets from 40 on."""
    response = ProduceResponse()
    for topic in request.topic_data:
        into = response.responses.add(topic_id=topic.topic_id)
        for data in topic.partition_data:
            into.partition_responses.add(
                index=data.index, base_offset=40 + data.index, log_append_time_ms=99, log_start_offset=5
            )
    return response


@pytest.mark.rule("KL-49", "KL-51")
@pytest.mark.parametrize("version", VERSIONS)
@virtual
async def test_a_batch_is_stored_as_its_producer_made_it(version: int) -> None:
    connection = ScriptedConnection(produce=confirmed)
    asked = sent(version, {"orders": {0: BATCH, 1: NUMBERED}})
    got = await answer(version, asked, connection, produce.answer)
    request = connection.request
    assert (request.acks, request.timeout_ms, request.HasField("transactional_id")) == (-1, 1500, False)
    (topic,) = request.topic_data
    assert topic.topic_id == ORDERS
    first, second = (data.batches[0] for data in topic.partition_data)
    assert (first.record_batch, first.record_count, first.max_timestamp_ms) == (stored(BATCH), 2, 1001)
    assert not first.HasField("producer_id")
    assert not first.is_transactional
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (2**62, 4, 9)
    assert (second.record_batch, second.record_count) == (stored(NUMBERED), 3)
    (answered_topic,) = got.responses
    assert [(one.index, one.error_code, one.base_offset) for one in answered_topic.partition_responses] == [
        (0, 0, 40),
        (1, 0, 41),
    ]
    # The records keep the timestamps of their producer, so the answer has none of the leader's.
    assert [one.log_append_time for one in answered_topic.partition_responses] == [None, None]
    if version >= 5:
        assert [one.log_start_offset for one in answered_topic.partition_responses] == [5, 5]


@virtual
async def test_the_records_of_a_request_are_copied_once_and_forgotten_when_the_node_has_them() -> None:
    value = from_native(RecordBatch(records=[Record(value=bytes(1 << 20))]).SerializeToString(), 1, 0)
    request = asked("Produce", 13, sent(13, {"orders": {0: value, 1: value}}))
    held: list[Any] = []

    def node(native: ProduceRequest) -> ProduceResponse:
        held.extend(data.records for topic in request.topic_data for data in topic.partition_data)
        return confirmed(native)

    connection = ScriptedConnection(produce=node)
    tracemalloc.start()
    try:
        await produce.answer(request, 13, connection)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held == [None, None]
    assert len(value) < peak < 2 * len(value)  # one batch at a time, beside what protobuf has of them
    (topic,) = connection.request.topic_data
    assert [data.batches[0].record_batch for data in topic.partition_data] == [stored(value)] * 2


@virtual
async def test_a_request_that_its_stream_did_not_take_is_answered_with_the_streams_error() -> None:
    class Ended(ScriptedConnection):
        async def produce(self, make: Making[ProduceRequest]) -> ProduceResponse | None:
            raise NotLeaderOrFollowerError("the stream has ended")

    got = await answer(13, sent(13, {"orders": {0: BATCH, 1: None}}), Ended(), produce.answer)
    (topic,) = got.responses
    assert [(one.index, one.error_code) for one in topic.partition_responses] == [(0, 6), (1, 87)]


@pytest.mark.rule("KL-49")
@virtual
async def test_zeros_of_an_idempotent_producer_are_sent_too() -> None:
    connection = ScriptedConnection(produce=confirmed)
    zeros = batch(1, producer_id=1, producer_epoch=0, base_sequence=0)
    await answer(9, sent(9, {"orders": {0: zeros}}), connection, produce.answer)
    made = connection.request.topic_data[0].partition_data[0].batches[0]
    assert made.HasField("producer_epoch")
    assert made.HasField("base_sequence")
    assert (made.producer_id, made.producer_epoch, made.base_sequence) == (1, 0, 0)


@pytest.mark.rule("KL-49")
@virtual
async def test_a_transaction_is_the_leaders_to_judge() -> None:
    connection = ScriptedConnection(produce=confirmed)
    records = batch(1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    await answer(12, sent(12, {"orders": {0: records}}, transactional_id="t"), connection, produce.answer)
    assert connection.request.transactional_id == "t"
    assert connection.request.topic_data[0].partition_data[0].batches[0].is_transactional


@pytest.mark.rule("KL-49")
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, 87),
        (b"", 87),
        (BATCH + BATCH, 87),
        (BATCH[:-1], 2),
        (BATCH + b"\0", 2),
        (b"\0" * 20, 2),
        (BATCH[:16] + b"\1" + BATCH[17:], 43),
    ],
)
@virtual
async def test_what_is_not_one_batch_is_refused_and_the_rest_is_stored(records: bytes | None, code: int) -> None:
    connection = ScriptedConnection(produce=confirmed)
    asked = sent(9, {"orders": {0: records, 1: BATCH}, "payments": {0: records}})
    got = await answer(9, asked, connection, produce.answer)
    assert [
        (one.index, one.error_code, one.base_offset) for topic in got.responses for one in topic.partition_responses
    ] == [(0, code, -1), (1, 0, 41), (0, code, -1)]
    assert got.responses[0].partition_responses[0].error_message
    assert [data.index for topic in connection.request.topic_data for data in topic.partition_data] == [1]


@pytest.mark.rule("KL-49")
@pytest.mark.parametrize("version", [6, 7])
@virtual
async def test_zstd_needs_version_7(version: int) -> None:
    connection = ScriptedConnection(produce=confirmed)
    records = batch(1, Compression.ZSTD)
    assert header_of(records).compression == Compression.ZSTD
    got = await answer(version, sent(version, {"orders": {0: records}}), connection, produce.answer)
    assert got.responses[0].partition_responses[0].error_code == (0 if version == 7 else 76)


@pytest.mark.rule("KL-41")
@virtual
async def test_an_unknown_name_is_refused_as_its_caller_may_know() -> None:
    asked = sent(9, {"nope": {0: BATCH}})
    for allowed, code in ((None, 3), ([allow(Operation.WRITE, "nope")], 3), ([], 29)):
        connection = ScriptedConnection(allowed, produce=confirmed)
        got = await answer(9, asked, connection, produce.answer)
        assert [one.error_code for one in got.responses[0].partition_responses] == [code]
        assert connection.calls == []


@pytest.mark.rule("KL-41")
@pytest.mark.parametrize(("version", "code"), [(12, 3), (13, 100)])
@virtual
async def test_a_deleted_topic_is_an_unknown_name_or_an_unknown_id(version: int, code: int) -> None:
    response = ProduceResponse()
    into = response.responses.add(topic_id=ORDERS)
    into.partition_responses.add(index=0, error_code=100, error_message="gone", base_offset=-1)
    connection = ScriptedConnection(produce=response)
    got = await answer(version, sent(version, {"orders": {0: BATCH}}), connection, produce.answer)
    assert [(one.error_code, one.error_message) for one in got.responses[0].partition_responses] == [(code, "gone")]


@pytest.mark.rule("KL-42")
@pytest.mark.parametrize("version", [9, 10, 13])
@pytest.mark.parametrize("leader", [2, 3])
@virtual
async def test_a_refusal_names_the_leader_with_its_listener(version: int, leader: int) -> None:
    response = ProduceResponse()
    one = response.responses.add(topic_id=ORDERS).partition_responses.add(index=0, error_code=6)
    one.current_leader.leader_id, one.current_leader.leader_epoch = leader, 8
    connection = ScriptedConnection(produce=response)
    got = await answer(version, sent(version, {"orders": {0: BATCH}}), connection, produce.answer)
    (result,) = got.responses[0].partition_responses
    assert result.error_code == 6
    if version >= 10:
        known = leader == 2
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == ((2, 8) if known else (-1, -1))
        assert [(each.node_id, each.host, each.port, each.rack) for each in got.node_endpoints] == (
            [(2, "two.example", 9093, "r2")] if known else []
        )


@pytest.mark.rule("KL-40")
@virtual
async def test_no_room_on_the_node_lets_a_producer_try_again() -> None:
    response = ProduceResponse(throttle_time_ms=70)
    response.responses.add(topic_id=ORDERS).partition_responses.add(index=0, error_code=89)
    connection = ScriptedConnection(produce=response)
    got = await answer(9, sent(9, {"orders": {0: BATCH}}), connection, produce.answer)
    assert got.responses[0].partition_responses[0].error_code == 56
    assert got.throttle_time.total_seconds() == 0.07


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_partition() -> None:
    connection = ScriptedConnection(produce=InvalidRequestError("too many partitions"))
    got = await answer(8, sent(8, {"orders": {0: BATCH, 1: None}}), connection, produce.answer)
    assert [one.error_code for one in got.responses[0].partition_responses] == [42, 87]
    connection = ScriptedConnection(produce=ProduceResponse())
    got = await answer(8, sent(8, {"orders": {0: BATCH}}), connection, produce.answer)
    assert [one.error_code for one in got.responses[0].partition_responses] == [-1]


@pytest.mark.rule("KL-50")
@virtual
async def test_acks_0_is_not_answered_and_stored_like_acks_1() -> None:
    connection = ScriptedConnection(produce=confirmed)
    assert await answer(7, sent(7, {"orders": {0: BATCH}}, acks=0), connection, produce.answer) is None
    assert connection.request.acks == 1


@pytest.mark.rule("KL-50")
@pytest.mark.parametrize(
    ("topics", "node", "error"),
    [
        ({"nope": {0: BATCH}}, confirmed, UnknownTopicOrPartitionError),
        ({"orders": {0: BATCH}}, NotLeaderOrFollowerError("elsewhere"), NotLeaderOrFollowerError),
        ({"orders": {0: BATCH}}, TopicAuthorizationFailedError("no"), TopicAuthorizationFailedError),
    ],
)
@virtual
async def test_a_refusal_with_acks_0_ends_the_connection(
    topics: dict[str, dict[int, bytes | None]], node: Any, error: type[KafkaError]
) -> None:
    connection = ScriptedConnection(produce=node)
    with pytest.raises(error):
        await answer(7, sent(7, topics, acks=0), connection, produce.answer)


@pytest.mark.rule("KL-51")
@virtual
async def test_other_acks_are_passed_on_for_the_node_to_refuse() -> None:
    connection = ScriptedConnection(produce=confirmed)
    await answer(7, sent(7, {"orders": {0: BATCH}}, acks=2), connection, produce.answer)
    assert connection.request.acks == 2


@pytest.mark.rule("KL-51")
@virtual
async def test_a_request_without_topics_needs_no_node() -> None:
    connection = ScriptedConnection()
    got = await answer(9, sent(9, {}), connection, produce.answer)
    assert got.responses == ()
    assert connection.calls == []
