"""Produce, as a call and as a stream: offsets, repeats, and what is refused with what."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceStreamRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.api.v1.write_txn_markers_pb2 import WriteTxnMarkersRequest
from kip932.rpc.transport import TransportError, TransportStatus
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import Topic, opened, other_node, topic

UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, INVALID_REQUIRED_ACKS, INVALID_REQUEST = 3, 6, 21, 42
OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_RECORD, UNKNOWN_TOPIC_ID = 45, 47, 87, 100


def batch(count: int, producer_id: int = -1, sequence: int = -1, epoch: int = 0) -> ProduceRequest.Batch:
    records = [Record(value=b"%d" % number) for number in range(count)]
    return ProduceRequest.Batch(
        record_batch=RecordBatch(base_timestamp_ms=1_700_000_000_000, records=records).SerializeToString(),
        record_count=count,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        max_timestamp_ms=1_700_000_000_000,
    )


def request(topic_id: bytes, *batches: ProduceRequest.Batch, partition: int = 0, acks: int = -1) -> ProduceRequest:
    made = ProduceRequest(acks=acks, timeout_ms=10_000)
    made.topic_data.add(topic_id=topic_id).partition_data.add(index=partition, batches=batches)
    return made


def answered(answer: Any) -> Any:
    """The answer for the only partition."""
    (result,) = answer.responses
    (found,) = result.partition_responses
    return found


async def produce(services: Services, place: Topic, *batches: ProduceRequest.Batch, **fields: int) -> Any:
    return answered(await services.call("Produce", request(place.id, *batches, **fields), place.leaders[0]))


@contract
async def test_each_batch_is_told_its_first_offset(services: Services) -> None:
    place = await topic(services)
    first = await produce(services, place, batch(3))
    more = await produce(services, place, batch(2), batch(4))
    assert (first.error_code, first.base_offset, list(first.base_offsets)) == (0, 0, [0])
    assert (more.error_code, more.base_offset, list(more.base_offsets)) == (0, 3, [3, 5])
    assert (await produce(services, place, batch(1), acks=1)).base_offset == 9


@contract
async def test_a_batch_that_is_sent_again_is_stored_once(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    for sequence, base in ((0, 0), (0, 0), (2, 2), (0, 0), (2, 2), (4, 4)):
        found = await produce(services, place, batch(2, 77, sequence))
        assert (found.error_code, list(found.base_offsets)) == (0, [base])
    other = await produce(services, place, batch(1, 78, 0))
    assert other.base_offset == 6
    assert [found[:2] for found in await session.acquire()] in ([(0, 6)], [(0, 1), (2, 3), (4, 5), (6, 6)])


@contract
async def test_a_gap_in_a_producers_sequence_is_refused(services: Services) -> None:
    place = await topic(services)
    assert (await produce(services, place, batch(2, 77, 0))).error_code == 0
    refused = await produce(services, place, batch(1, 77, 5))
    assert (refused.error_code, refused.base_offset) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert (await produce(services, place, batch(1, 77, 2))).base_offset == 2


@contract
async def test_a_new_epoch_of_a_producer_counts_from_zero(services: Services) -> None:
    place = await topic(services)
    assert (await produce(services, place, batch(2, 77, 0))).base_offset == 0
    assert (await produce(services, place, batch(1, 77, 0, epoch=1))).base_offset == 2
    assert (await produce(services, place, batch(1, 77, 2))).error_code == INVALID_PRODUCER_EPOCH
    assert (await produce(services, place, batch(1, 77, 1, epoch=2))).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await produce(services, place, batch(1, 77, 1, epoch=1))).base_offset == 3


@contract
async def test_a_producer_that_is_not_known_begins_with_zero(services: Services) -> None:
    place = await topic(services)
    assert (await produce(services, place, batch(1, 77, 12))).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await produce(services, place, batch(1, 77, 0))).base_offset == 0


@contract
async def test_acks_must_say_that_the_answer_waits(services: Services) -> None:
    place = await topic(services)
    refused = await produce(services, place, batch(1), acks=0)
    assert (refused.error_code, refused.base_offset) == (INVALID_REQUIRED_ACKS, -1)
    assert (await produce(services, place)).error_code == INVALID_RECORD, "no batch at all"
    assert (await produce(services, place, batch(1))).base_offset == 0


@contract
async def test_topics_and_partitions_that_are_not_there_take_nothing(services: Services) -> None:
    place = await topic(services)
    for topic_id, number, code in (
        (b"no topic has it!", 0, UNKNOWN_TOPIC_ID),
        (place.id, 7, UNKNOWN_TOPIC_OR_PARTITION),
    ):
        answer = await services.call("Produce", request(topic_id, batch(1), partition=number), place.leaders[0])
        found = answered(answer)
        assert (found.error_code, found.base_offset, found.index) == (code, -1, number)
        assert answer.responses[0].topic_id == topic_id


@contract
async def test_a_node_that_does_not_lead_names_who_does(services: Services) -> None:
    place = await topic(services)
    (leader,) = (await services.leaders(place.name)).values()
    elsewhere = await other_node(services, place)
    async for _ in attempts():  # until it has heard who leads
        answer = await services.call("Produce", request(place.id, batch(1)), elsewhere)
        refused = answered(answer)
        assert (refused.error_code, refused.base_offset) == (NOT_LEADER, -1)
        if refused.HasField("current_leader"):
            break
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (leader.node_id, leader.epoch)
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in answer.node_endpoints}
    assert nodes[leader.node_id] == leader.address
    assert (await produce(services, place, batch(1))).base_offset == 0


@contract
async def test_each_partition_of_a_request_has_its_own_answer(services: Services) -> None:
    place = await topic(services)
    made = request(place.id, batch(1))
    made.topic_data[0].partition_data.add(index=9, batches=[batch(1)])
    answer = await services.call("Produce", made, place.leaders[0])
    codes = {one.index: one.error_code for result in answer.responses for one in result.partition_responses}
    assert codes == {0: 0, 9: UNKNOWN_TOPIC_OR_PARTITION}


@contract
async def test_there_are_no_transactions(services: Services) -> None:
    place = await topic(services)
    sent = request(place.id, batch(1, 77, 0))
    sent.transactional_id = "tx"
    answer = answered(await services.call("Produce", sent, place.leaders[0]))
    assert (answer.error_code, answer.base_offset) == (INVALID_REQUEST, -1)
    refused = await services.call("InitProducerId", InitProducerIdRequest(transactional_id="tx"))
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (INVALID_REQUEST, -1, -1)
    with pytest.raises(TransportError) as not_served:
        await services.call("WriteTxnMarkers", WriteTxnMarkersRequest(), place.leaders[0])
    assert not_served.value.status is TransportStatus.UNIMPLEMENTED


@contract
async def test_requests_of_a_stream_are_stored_in_order_and_answered_by_number(services: Services) -> None:
    place = await topic(services)
    stream = await services.stream("ProduceStream", place.leaders[0])
    for number in range(5):
        sent = request(place.id, batch(2, 77, 2 * number))
        await stream.write(ProduceStreamRequest(correlation_id=100 + number, request=sent))
    answers = [await stream.read() for _ in range(5)]
    bases = {answer.correlation_id: answered(answer.response).base_offset for answer in answers}
    assert bases == {100 + number: 2 * number for number in range(5)}
    await stream.close()
