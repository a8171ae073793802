"""Produce, as a unary call and as a stream: offsets, retries, and the errors of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1.describe_transactions_pb2 import DescribeTransactionsRequest
from kip932.api.v1.end_txn_pb2 import EndTxnRequest, EndTxnResponse
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest, InitProducerIdResponse
from kip932.api.v1.list_transactions_pb2 import ListTransactionsRequest
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceStreamRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.api.v1.write_txn_markers_pb2 import WriteTxnMarkersRequest
from kip932.ids import REQUEST_TRANSACTIONS_MAX
from kip932.rpc.transport import TransportError, TransportStatus
from tests.integration.scenarios.wire import attempts

from .hosting import Services, contract
from .members import Topic, opened, other_node, topic

UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, INVALID_REQUIRED_ACKS = 3, 6, 21
INVALID_REQUEST, INVALID_TXN_STATE, PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND = 42, 48, 90, 105
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
    """Return the response for the only partition."""
    (result,) = answer.responses
    (found,) = result.partition_responses
    return found


async def produce(services: Services, place: Topic, *batches: ProduceRequest.Batch, **fields: int) -> Any:
    return answered(await services.call("Produce", request(place.id, *batches, **fields), place.leaders[0]))


@contract
async def test_each_batch_gets_its_first_offset(services: Services) -> None:
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
async def test_batches_that_were_given_up_leave_a_gap_and_are_not_stored_when_they_arrive_late(
    services: Services,
) -> None:
    place = await topic(services)
    late = batch(1, 77, 0), batch(2, 77, 1), batch(1, 77, 3)
    after = batch(2, 77, 1)
    after.after_given_up = True
    assert (await produce(services, place, after)).base_offset == 0
    assert (await produce(services, place, *late)).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await produce(services, place, *late[1:])).base_offset == 0
    assert (await produce(services, place, batch(1, 77, 4))).base_offset == 3


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
    async for _ in attempts():  # until it knows the leader
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


async def begin(services: Services, place: Topic, **fields: int) -> InitProducerIdResponse:
    asked = InitProducerIdRequest(transactional_id=place.name, transaction_timeout_ms=60_000, **fields)
    made: InitProducerIdResponse = await services.call("InitProducerId", asked)
    return made


async def transact(services: Services, place: Topic, producer: InitProducerIdResponse) -> int:
    """Produce a record in a transaction of this producer; return the error code."""
    sent = request(place.id, batch(1, producer.producer_id, 0, producer.producer_epoch))
    sent.transactional_id = place.name
    sent.topic_data[0].partition_data[0].batches[0].is_transactional = True
    return int(answered(await services.call("Produce", sent, place.leaders[0])).error_code)


async def end(services: Services, place: Topic, producer: InitProducerIdResponse, *, commit: bool) -> EndTxnResponse:
    asked = EndTxnRequest(
        transactional_id=place.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    asked.topics.add(topic_id=place.id, partition_indexes=[0])
    made: EndTxnResponse = await services.call("EndTxn", asked)
    return made


@pytest.mark.rule("CM-152", "CM-154")
@contract
async def test_a_transaction_is_decided_once_and_each_has_an_epoch_of_its_own(services: Services) -> None:
    place = await topic(services)
    first = await begin(services, place)
    assert (first.error_code, await transact(services, place, first)) == (0, 0)
    ended = await end(services, place, first, commit=True)
    assert (ended.producer_id, ended.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    again = await end(services, place, first, commit=True)
    assert (again.error_code, again.producer_epoch) == (0, ended.producer_epoch)
    other = await end(services, place, first, commit=False)
    assert (other.error_code, other.producer_id, other.producer_epoch) == (INVALID_TXN_STATE, -1, -1)
    assert await transact(services, place, first) == INVALID_PRODUCER_EPOCH
    known = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    goes_on = await begin(services, place, **known)
    assert goes_on.producer_epoch == ended.producer_epoch
    assert await transact(services, place, goes_on) == 0
    assert (await end(services, place, goes_on, commit=False)).error_code == 0


@pytest.mark.rule("CM-152")
@contract
async def test_a_new_producer_fences_the_one_before_and_aborts_what_it_left_open(services: Services) -> None:
    place = await topic(services)
    first = await begin(services, place)
    assert await transact(services, place, first) == 0
    second = await begin(services, place)
    assert second.producer_epoch > first.producer_epoch
    assert await transact(services, place, first) == PRODUCER_FENCED
    assert (await end(services, place, first, commit=True)).error_code == INVALID_TXN_STATE
    known = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    assert (await begin(services, place, **known)).error_code == PRODUCER_FENCED
    assert await transact(services, place, second) == 0


@pytest.mark.rule("CM-157", "CM-158")
@contract
async def test_every_node_describes_an_open_transaction_and_an_operator_aborts_it(services: Services) -> None:
    place = await topic(services)
    producer = await begin(services, place)
    assert await transact(services, place, producer) == 0
    too_many = DescribeTransactionsRequest(transactional_ids=["x"] * (REQUEST_TRANSACTIONS_MAX + 1))
    for hostile in (too_many, ListTransactionsRequest(cursor="x" * 2_000)):
        with pytest.raises(TransportError) as refused:
            await services.call(type(hostile).__name__.removesuffix("Request"), hostile)
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT
    for node in {place.leaders[0], await other_node(services, place)}:
        asked = DescribeTransactionsRequest(transactional_ids=[place.name, "unknown", ""])
        answer = await services.call("DescribeTransactions", asked, node)
        known, unknown, wrong = answer.transaction_states
        assert (known.transaction_state, known.producer_id) == ("Ongoing", producer.producer_id)
        assert [(each.topic, list(each.partitions)) for each in known.topics] == [(place.name, [0])]
        assert known.open_ms >= 0
        assert (unknown.error_code, wrong.error_code) == (TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST)
        cursor, first = "", True
        found: set[tuple[str, str]] = set()
        while cursor or first:
            page = await services.call("ListTransactions", ListTransactionsRequest(cursor=cursor), node)
            found |= {(each.transactional_id, each.transaction_state) for each in page.transaction_states}
            cursor, first = page.next_cursor, False
        assert (place.name, "Ongoing") in found
    aborts = EndTxnRequest(
        transactional_id=place.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        by_operator=True,
    )
    assert (await services.call("EndTxn", aborts)).error_code == 0
    assert (await end(services, place, producer, commit=True)).error_code == PRODUCER_FENCED
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    assert (await begin(services, place, **fields)).error_code == PRODUCER_FENCED
    assert await transact(services, place, await begin(services, place)) == 0


@pytest.mark.rule("CM-155", "CM-80")
@contract
async def test_markers_are_no_business_of_clients(services: Services) -> None:
    place = await topic(services)
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
